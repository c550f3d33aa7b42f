// The interface `transform` of `wit/deps/script`; the connector itself is `connector.js`.

import { Connector } from "../connector.js";
import { guarded, schemaOfConfig } from "./host.js";
import { checkedConfig, Columns, ConnectorError, Rows } from "./rapidbyte.js";
import { columnsText, columnValues, rowsText } from "./text.js";

const FROM_UTF8 = new TextDecoder();
// Handing over bytes takes a hundredth of the time that strings take.
const UTF8 = new TextEncoder();

/** The connector, opened with one configuration. */
class Session {
  constructor(connector) {
    this.connector = connector;
  }

  plan(input) {
    return guarded(input.stream, () => {
      const { stream = input.stream, columns, primaryKey = [], notes = [] } = this.connector.plan(plain(input)) ?? {};
      if (stream !== input.stream) {
        const hint = "a transform keeps the name of the stream; `target:` in the pipeline file gives the target another one";
        throw new ConnectorError("internal", "not_a_plan", `\`plan\` returns the stream ${stream}`, { hint });
      }
      const parts = { columns: areTexts(Object.values(columns ?? [1])), primaryKey: areTexts(primaryKey), notes: areTexts(notes) };
      for (const [part, isRight] of Object.entries(parts)) {
        if (!isRight) {
          const hint = "return the relation, or columns with their types, primaryKey and notes; `plan` is not asynchronous";
          throw new ConnectorError("internal", "not_a_plan", `\`plan\` returns no ${part} of strings`, { hint });
        }
      }
      return { columns: JSON.stringify(columns), primaryKey, notes };
    });
  }

  begin(input, columns) {
    return guarded(input.stream, () => new Transformer(this.connector, plain(input), input.names, columns));
  }
}

const plain = ({ stream, columns, primaryKey }) => ({ stream, columns: JSON.parse(columns), primaryKey });
const areTexts = (values) => Array.isArray(values) && values.every((value) => typeof value === "string");

/** Transforms one stream, batch by batch. */
class Transformer {
  constructor(connector, relation, before, behind) {
    this.connector = connector;
    this.relation = relation;
    this.before = before.map((name) => [name, relation.columns[name]]);
    this.behind = behind;
    // The plan depends on the configuration and on the relation alone.
    this.types = connector.plan(relation).columns;
  }

  transform(count, columns) {
    return guarded(this.relation.stream, () => {
      const values = this.before.map(([name, type], at) => [name, columnValues(FROM_UTF8.decode(columns[at]), type)]);
      const given = new Rows(Object.fromEntries(values), Number(count));
      const result = this.connector.transform(this.relation, given);
      if (result instanceof Columns) {
        const texts = columnsText(result.values, this.behind, this.types, "`transform` returns");
        return { tag: "columns", val: texts.map((text) => UTF8.encode(text)) };
      }
      if (!Array.isArray(result)) {
        const hint = "return an array of objects or Columns";
        throw new ConnectorError("internal", "not_a_batch", `\`transform\` returns ${typeof result}, which is not a batch`, { hint });
      }
      return { tag: "objects", val: UTF8.encode(rowsText(result, this.types)) };
    });
  }
}

export const transform = {
  describe() {
    return {
      name: Connector.connectorName,
      version: Connector.version,
      description: Connector.description,
      configSchema: JSON.stringify(schemaOfConfig(Connector)),
      wideTexts: true,
    };
  },

  open(config) {
    return guarded(undefined, () => {
      const values = checkedConfig(schemaOfConfig(Connector), JSON.parse(config));
      return new Session(new Connector(values));
    });
  },

  Session,
  Transformer,
};
