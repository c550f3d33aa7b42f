// The interface `destination` of `wit/deps/script`; the connector itself is `connector.js`.

import { Connector } from "../connector.js";
import { described, guarded, schemaOfConfig } from "./host.js";
import { checkedConfig, ConnectorError, Rows } from "./rapidbyte.js";
import { columnValues } from "./text.js";

const UTF8 = new TextDecoder();

/** The connector, opened with one configuration. */
class Session {
  constructor(connector) {
    this.connector = connector;
  }

  check() {
    return guarded(undefined, () => {
      const item = { name: "check", problem: undefined, detail: "" };
      try {
        return [{ ...item, detail: this.connector.check() }];
      } catch (error) {
        if (!(error instanceof ConnectorError)) throw error;
        return [{ ...item, problem: described(error) }];
      }
    });
  }

  plan(target) {
    return guarded(target.stream, () => {
      const { location, isNew, refused = {}, notes = [] } = this.connector.plan(plain(target)) ?? {};
      if (typeof location !== "string" || typeof isNew !== "boolean") {
        const hint = "return { location, isNew, refused, notes }; `plan` is not asynchronous";
        throw new ConnectorError("internal", "not_a_plan", "`plan` returns no location with isNew", { hint });
      }
      const refusals = Object.entries(refused).map(([column, why]) => ({ column, why }));
      return { location, isNew, refused: refusals, notes };
    });
  }

  begin(target) {
    return guarded(target.stream, () => {
      const asked = plain(target);
      return new Writer(this.connector.begin(asked), asked, target.names);
    });
  }
}

const plain = ({ names: _, ...target }) => ({ ...target, columns: JSON.parse(target.columns) });

/** One stream on its way: the object that `Connector.begin` gives. */
class Writer {
  constructor(writer, target, names) {
    this.writer = writer;
    this.stream = target.stream;
    // Objects do not keep the order of all keys: whole numbers come first.
    this.types = names.map((name) => [name, target.columns[name]]);
  }

  write(count, columns) {
    return guarded(this.stream, () => {
      const values = this.types.map(([name, type], at) => [name, columnValues(UTF8.decode(columns[at]), type)]);
      return this.writer.write(new Rows(Object.fromEntries(values), Number(count)));
    });
  }

  commit() {
    return guarded(this.stream, () => {
      const { location, bytes = 0 } = this.writer.commit() ?? {};
      if (typeof location !== "string" || !Number.isSafeInteger(bytes) || bytes < 0) {
        const hint = "return { location, bytes }; `commit` is not asynchronous";
        throw new ConnectorError("internal", "not_a_receipt", "`commit` returns no location with a number of bytes", { hint });
      }
      return { location, bytes: BigInt(bytes) };
    });
  }

  abort() {
    return guarded(this.stream, () => this.writer.abort());
  }
}

export const destination = {
  describe() {
    return {
      name: Connector.connectorName,
      version: Connector.version,
      description: Connector.description,
      configSchema: JSON.stringify(schemaOfConfig(Connector)),
      writeModes: Connector.writeModes,
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
  Writer,
};
