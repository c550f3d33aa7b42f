// {{name}}: a destination that writes each stream as a file of JSON Lines, complete or not at all.
// Replace the file by your system.

import { exists, Output, probe } from "./rapidbyte/files.js";
import { objectText } from "./rapidbyte/text.js";

export class Connector {
  static connectorName = "{{name}}";
  static version = "0.1.0";
  static description = "Writes JSON Lines";
  // What stands under `config:`, as a JSON Schema; other keys are refused.
  static config = {
    properties: {
      path: {
        type: "string",
        "x-grant": "write",
        description: "The file of each stream; `{stream}` stands for its name. Nothing else can be written.",
      },
    },
    required: ["path"],
  };
  // `append` would be the other one: a new file for each run, with `{part}` in `path` for its number.
  static writeModes = ["replace"];

  constructor(config) {
    this.path = config.path;
  }

  /** What a run would need; gives what was looked at. */
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

/** Writes one stream. Nobody sees anything of it before `commit`. */
class Writer {
  constructor(path) {
    this.file = new Output(path);
  }

  write(rows) {
    // Rows are objects; `rows.columns` has the same as an array for each column. `objectText` is
    // `JSON.stringify` that takes a BigInt.
    this.file.write(`${rows.toArray().map(objectText).join("\n")}\n`);
  }

  /** Everything becomes visible, at once. Gives where, and how many bytes it is. */
  commit() {
    this.file.commit();
    return { location: this.file.path, bytes: this.file.bytes };
  }

  /** Nothing is left of what was written. */
  abort() {
    this.file.abort();
  }
}
