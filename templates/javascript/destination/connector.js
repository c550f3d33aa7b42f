// {{name}}: a destination that writes each stream as a file of JSON Lines, complete or not at all.
// Replace the file with your system.

import { exists, Output, probe } from "./rapidbyte/files.js";
import { objectText } from "./rapidbyte/text.js";

export class Connector {
  static connectorName = "{{name}}";
  static version = "0.1.0";
  static description = "Writes JSON Lines";
  // The keys of `config:`, as a JSON Schema; other keys are refused.
  // The values are checked by `type`, `enum`, `minimum`, `maximum`, `pattern` and `items`; check anything
  // else in the constructor.
  static config = {
    properties: {
      path: {
        type: "string",
        "x-grant": "write",
        description: "The file of each stream; `{stream}` stands for its name. The connector can write no other file.",
      },
    },
    required: ["path"],
  };
  // The other mode is `append`: a new file for each run, with `{part}` in `path` for its number, begun by
  // `Output.createNew`, so that two runs at once cannot replace each other's file.
  static writeModes = ["replace"];

  constructor(config) {
    this.path = config.path;
  }

  /** Checks what a run needs; returns what it checked. */
  check() {
    probe(this.file("check"));
    return "a file can be created";
  }

  plan(target) {
    const location = this.file(target.stream);
    return { location, isNew: !exists(location) };
  }

  begin(target) {
    return new Writer(this.file(target.stream));
  }

  file(stream) {
    return this.path.replaceAll("{stream}", stream);
  }
}

/** Writes one stream. Nothing of it is visible before `commit`. */
class Writer {
  constructor(path) {
    this.file = new Output(path);
  }

  write(rows) {
    // Rows are objects; `rows.columns` has the same as an array for each column. `objectText` is
    // `JSON.stringify` that takes a BigInt.
    this.file.write(`${rows.toArray().map(objectText).join("\n")}\n`);
  }

  /** Makes all rows visible in one step. Returns the place and the number of bytes. */
  commit() {
    this.file.commit();
    return { location: this.file.path, bytes: this.file.bytes };
  }

  /** Removes everything that was written. */
  abort() {
    this.file.abort();
  }
}
