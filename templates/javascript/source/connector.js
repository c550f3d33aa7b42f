// {{name}}: a source that counts. Replace the numbers with the rows of your system.

import { Checkpoint, Columns, ConnectorError } from "./rapidbyte/rapidbyte.js";

const BATCH_ROWS = 2_000;
// About what a row has, in bytes: a batch has no more rows than the host asks bytes for.
const ROW_BYTES = 32;

export class Connector {
  static connectorName = "{{name}}";
  static version = "0.1.0";
  static description = "Counts";
  // The keys of `config:`, as a JSON Schema; other keys are refused.
  // The values are checked by `type`, `enum`, `minimum`, `maximum`, `pattern` and `items`; check anything
  // else in the constructor.
  static config = {
    properties: {
      rows: { type: "integer", minimum: 0, description: "The number of rows." },
    },
    required: ["rows"],
  };
  // `read` can resume after a checkpoint.
  static incremental = true;

  constructor(config) {
    this.rowCount = config.rows;
  }

  streams() {
    return [
      {
        name: "numbers",
        columns: { n: "int64 not null", label: "string" },
        primaryKey: ["n"],
        cursorFields: ["n"],
        estimatedRows: this.rowCount,
      },
    ];
  }

  *read(request) {
    let at = begin(request);
    const size = Math.max(1, Math.min(BATCH_ROWS, Math.floor(request.batchBytes / ROW_BYTES)));
    while (at < this.rowCount) {
      const end = Math.min(at + size, this.rowCount);
      const [n, label] = [[], []];
      for (; at < end; at++) {
        n.push(at);
        label.push(`number ${at}`);
      }
      // Rows as objects also work: yield [{ n: 0, label: "number 0" }, …]
      yield new Columns({ n, label });
      if (request.incremental) yield new Checkpoint(at - 1);
    }
  }
}

/** The first number: after the checkpoint, or at the start that the operator chose. */
function begin(request) {
  if (request.cursor !== undefined) {
    if (!Number.isSafeInteger(request.cursor)) {
      throw new ConnectorError("config", "invalid_cursor", "not a checkpoint of this source");
    }
    return request.cursor + 1;
  }
  const [initial] = request.initial ?? ["0"];
  const number = Number(initial);
  if (!Number.isSafeInteger(number)) {
    const hint = "set cursor_initial to an integer";
    throw new ConnectorError("config", "invalid_cursor", `"${initial}" is not a number`, { hint });
  }
  return number;
}
