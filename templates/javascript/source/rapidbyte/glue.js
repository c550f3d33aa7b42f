// The interface `source` of `wit/deps/script`; the connector itself is `connector.js`.

import { Connector } from "../connector.js";
import { guarded, schemaOfConfig } from "./host.js";
import { Checkpoint, checkedConfig, Columns, ConnectorError, Idle } from "./rapidbyte.js";
import { columnsText, rowsText } from "./text.js";

// Handing over bytes takes a hundredth of the time that strings take.
const UTF8 = new TextEncoder();

/** The connector, opened with one configuration. */
class Session {
  constructor(connector) {
    this.connector = connector;
  }

  streams() {
    return guarded(undefined, () =>
      this.connector.streams().map((stream) => {
        const rows = stream.estimatedRows;
        return {
          name: stream.name,
          columns: JSON.stringify(stream.columns),
          primaryKey: stream.primaryKey ?? [],
          cursorFields: stream.cursorFields ?? [],
          estimatedRows: rows === undefined ? undefined : BigInt(rows),
          notes: stream.notes ?? [],
        };
      }),
    );
  }

  read({ stream, columns, increment, batchBytes, maxRecordBytes }) {
    return guarded(stream, () => {
      const asked = { stream, columns, batchBytes, maxRecordBytes: Number(maxRecordBytes) };
      asked.incremental = increment !== undefined;
      if (increment) {
        const { initial, cursor } = increment;
        asked.cursorFields = this.connector.streams().find(({ name }) => name === stream).cursorFields;
        Object.assign(asked, { initial, cursor: cursor === undefined ? undefined : JSON.parse(cursor) });
      }
      return new Reader(this.connector, asked);
    });
  }

  acknowledge(stream, cursor) {
    guarded(stream, () => this.connector.acknowledge?.(stream, JSON.parse(cursor)));
  }
}

/** One read of a stream: the generator that `Connector.read` is. */
class Reader {
  constructor(connector, request) {
    this.request = request;
    this.declared = connector.streams().find(({ name }) => name === request.stream).columns;
    this.steps = connector.read(request);
  }

  next(_waitMs) {
    return guarded(this.request.stream, () => {
      const step = this.steps.next();
      // A promise where the generator is asynchronous.
      return typeof step.then === "function" ? step.then((step) => this.step(step)) : this.step(step);
    });
  }

  step({ value: step, done }) {
    if (done) return { tag: "end" };
    if (step instanceof Checkpoint) return { tag: "checkpoint", val: JSON.stringify(step.cursor) };
    if (step instanceof Idle) return { tag: "idle" };
    if (step instanceof Columns) {
      const texts = columnsText(step.values, this.request.columns, this.declared, "a batch with");
      return { tag: "columns", val: texts.map((text) => UTF8.encode(text)) };
    }
    if (!Array.isArray(step)) {
      const hint = "yield an array of objects, Columns, Checkpoint or Idle";
      throw new ConnectorError("internal", "not_a_batch", `\`read\` yields ${typeof step}, which is not a batch`, { hint });
    }
    return { tag: "rows", val: UTF8.encode(rowsText(step, this.declared)) };
  }
}

export const source = {
  describe() {
    return {
      name: Connector.connectorName,
      version: Connector.version,
      description: Connector.description,
      configSchema: JSON.stringify(schemaOfConfig(Connector)),
      incremental: Connector.incremental ?? false,
    };
  },

  open(config) {
    return guarded(undefined, () => {
      const values = checkedConfig(schemaOfConfig(Connector), JSON.parse(config));
      return new Session(new Connector(values));
    });
  },

  Session,
  Reader,
};
