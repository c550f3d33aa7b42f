// {{name}}: a source that counts. Replace the numbers by the rows of your system.

import { Checkpoint, Columns, ConnectorError } from "./rapidbyte/rapidbyte.js";

const BATCH_ROWS = 2_000;

export class Connector {
  static connectorName = "{{name}}";
  static version = "0.1.0";
  static description = "Counts";
  // What stands under `config:`, as a JSON Schema; other keys are refused.
  static config = {
    properties: {
      rows: { type: "integer", minimum: 0, description: "How many numbers there are." },
    },
    required: ["rows"],
  };
  // `read` goes on behind a checkpoint.
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
    while (at < this.rowCount) {
      const end = Math.min(at + BATCH_ROWS, this.rowCount);
      const [n, label] = [[], []];
      for (; at < end; at++) {
        n.push(at);
        label.push(`number ${at}`);
      }
      // Rows as objects would do as well: yield [{ n: 0, label: "number 0" }, …]
      yield new Columns({ n, label });
      if (request.incremental) yield new Checkpoint(at - 1);
    }
  }
}

/** The first number: behind the checkpoint, or at the start that the operator chose. */
function begin(request) {
  if (request.cursor !== undefined) {
    if (!Number.isSafeInteger(request.cursor)) {
      throw new ConnectorError("config", "invalid_cursor", "no checkpoint of this source");
    }
    return request.cursor + 1;
  }
  const [initial] = request.initial ?? ["0"];
  const number = Number(initial);
  if (!Number.isSafeInteger(number)) {
    const hint = "cursor_initial takes a whole number";
    throw new ConnectorError("config", "invalid_cursor", `"${initial}" is no number`, { hint });
  }
  return number;
}
