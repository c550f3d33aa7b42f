// The interface `source` of the contract; the connector itself is `connector.js`.

import { Encoder } from "rapidbyte:rows/encode@0.1.0";
import { enter } from "rapidbyte:connector/phase@0.1.0";
import { log } from "rapidbyte:connector/log@0.1.0";

import { Connector } from "../connector.js";
import { Checkpoint, checkedConfig, Columns, ConnectorError, Idle } from "./rapidbyte.js";
import { arrayText, objectText } from "./text.js";

// Handing over bytes takes a hundredth of the time that strings take.
const UTF8 = new TextEncoder();

const schemaOfConfig = () => ({ type: "object", additionalProperties: false, ...Connector.config });

/** Errors of the connector as those of the contract; what was not foreseen is the author's. */
function guarded(stream, work) {
  const refuse = (error) => {
    throw explained(error, stream);
  };
  try {
    const result = work();
    return typeof result?.then === "function" ? result.catch(refuse) : result;
  } catch (error) {
    return refuse(error);
  }
}

function explained(error, stream) {
  // Of an import: the contract's own.
  if (error?.payload?.kind) return { ...error.payload, stream: error.payload.stream ?? stream };
  if (error instanceof ConnectorError) return described(error, stream);
  log("error", `${error}\n${error?.stack ?? ""}`);
  return described(new ConnectorError("internal", "javascript", `${error}`), stream);
}

function described(error, stream) {
  const kind = { tag: error.kind };
  if (error.kind === "rate-limited") {
    kind.val = error.retryAfterMs === undefined ? undefined : BigInt(error.retryAfterMs);
  }
  const { code, message, hint, column, location } = error;
  return { kind, code, message, hint, stream: error.stream ?? stream, column, location };
}

const encoderOf = (stream, wanted, maxRecordBytes) =>
  Encoder.open(JSON.stringify(stream.columns), wanted, maxRecordBytes);

/** The connector, opened with one configuration. */
class Session {
  constructor(connector) {
    this.connector = connector;
  }

  check() {
    return guarded(undefined, () => {
      const detail = `${this.connector.streams().length} streams`;
      return [{ name: "discover", problem: undefined, detail }];
    });
  }

  discover(_forms) {
    return guarded(undefined, () =>
      this.connector.streams().map((stream) => {
        const encoder = encoderOf(stream, undefined, 1n);
        const rows = stream.estimatedRows;
        return {
          name: stream.name,
          schema: encoder.schema(),
          sourceTypes: encoder.types(),
          primaryKey: stream.primaryKey ?? [],
          cursorFields: stream.cursorFields ?? [],
          estimatedRows: rows === undefined ? undefined : BigInt(rows),
          estimatedBytes: undefined,
          notes: stream.notes ?? [],
        };
      }),
    );
  }

  snapshot(streams) {
    return guarded(undefined, () => {
      for (const selection of streams) this.asked(selection);
      return "";
    });
  }

  read(request) {
    return guarded(request.stream, () => {
      const [stream, asked] = this.asked(request);
      asked.batchBytes = request.batchBytes;
      asked.maxRecordBytes = Number(request.maxRecordBytes);
      return new Reader(this.connector, stream, asked, request.maxRecordBytes);
    });
  }

  acknowledge(stream, cursor) {
    guarded(stream, () => this.connector.acknowledge?.(stream, JSON.parse(cursor)));
  }

  /** The stream that is asked for, and what is asked of it. */
  asked({ stream: name, columns, increment, cursor }) {
    const stream = this.connector.streams().find((stream) => stream.name === name);
    if (!stream) {
      throw new ConnectorError("schema", "unknown_stream", `there is no stream \`${name}\``, { stream: name });
    }
    for (const column of columns ?? []) {
      if (!Object.hasOwn(stream.columns, column)) {
        const text = `there is no column \`${column}\``;
        throw new ConnectorError("schema", "unknown_column", text, { stream: name, column });
      }
    }
    const asked = { stream: name, columns: columns ?? Object.keys(stream.columns), incremental: false };
    if (increment) {
      const fields = stream.cursorFields ?? [];
      const { cursorFields, lateRows, initial } = increment;
      const isPlain = lateRows.tag === "lag" && lateRows.val === undefined;
      if (!isPlain || cursorFields.join() !== fields.join()) {
        const text = `reads go on behind ${fields.join(", ") || "nothing"}, without lag and late_rows`;
        throw new ConnectorError("config", "increment_not_possible", text, { stream: name });
      }
      Object.assign(asked, { incremental: true, cursorFields, initial });
      asked.cursor = cursor === undefined ? undefined : JSON.parse(cursor);
    }
    return [stream, asked];
  }
}

/** One read of a stream: the generator that `Connector.read` is. */
class Reader {
  constructor(connector, stream, request, maxRecordBytes) {
    this.request = request;
    this.encoder = encoderOf(stream, request.columns, maxRecordBytes);
    this.steps = connector.read(request);
  }

  schema() {
    return this.encoder.schema();
  }

  next(_waitMs) {
    return guarded(this.request.stream, () => this.advance());
  }

  /** The next event; the promise of it where the generator is asynchronous. */
  advance() {
    for (;;) {
      enter("decode");
      const step = this.steps.next();
      if (typeof step.then === "function") {
        return step.then((step) => this.event(step) ?? this.advance());
      }
      const event = this.event(step);
      if (event) return event;
    }
  }

  /** The event that a step of the generator is; none of an empty batch. */
  event({ value: step, done }) {
    if (done) return { tag: "end" };
    if (step instanceof Checkpoint) return { tag: "checkpoint", val: JSON.stringify(step.cursor) };
    if (step instanceof Idle) return { tag: "idle" };
    const batch = step instanceof Columns ? this.columns(step.values) : this.rows(step);
    return batch && { tag: "batch", val: batch };
  }

  columns(values) {
    const texts = this.request.columns.map((name) => {
      if (!Array.isArray(values[name])) {
        throw new ConnectorError("internal", "no_column", `a batch without the column \`${name}\``, { column: name });
      }
      return arrayText(values[name], name);
    });
    enter("arrow-encode");
    if (texts[0] === "[]") return undefined;
    return this.encoder.columns(texts.map((text) => UTF8.encode(text)));
  }

  rows(rows) {
    if (rows.length === 0) return undefined;
    const lines = rows.map(objectText).join("\n");
    enter("arrow-encode");
    return this.encoder.rows(UTF8.encode(lines));
  }
}

export const source = {
  describe() {
    return {
      name: Connector.connectorName,
      version: Connector.version,
      description: Connector.description,
      configSchema: JSON.stringify(schemaOfConfig()),
      syncModes: Connector.incremental ? ["full-refresh", "incremental"] : ["full-refresh"],
      writeModes: [],
      nativeForms: [],
      takesFilter: false,
      keepsCursor: false,
      dropsRepeats: false,
    };
  },

  open(config) {
    return guarded(undefined, () => {
      const values = checkedConfig(schemaOfConfig(), JSON.parse(config));
      return new Session(new Connector(values));
    });
  },

  Session,
  Reader,
};
