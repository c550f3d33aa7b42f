// The system's own files, as far as `files.js` uses them.

import * as fs from "node:fs";
import { dirname } from "node:path";

/** An error as those of the host come. */
function refusing(work) {
  try {
    return work();
  } catch (error) {
    const code = error.code === "EEXIST" ? "file_exists" : "file_io";
    const payload = { kind: { tag: "config" }, code, message: error.message };
    throw Object.assign(error, { payload });
  }
}

export const find = (path) => (fs.existsSync(path) ? [{ path, size: BigInt(fs.statSync(path).size) }] : []);

export const probe = (path) => refusing(() => fs.accessSync(dirname(path), fs.constants.W_OK));

export const open = (path) => refusing(() => new Input(fs.openSync(path, "r")));

export const create = (path) => refusing(() => new Output(path, false));

export const createNew = (path) => refusing(() => new Output(path, true));

let outputs = 0;

class Input {
  constructor(file) {
    this.file = file;
  }

  read(offset, length) {
    const piece = new Uint8Array(length);
    return piece.subarray(0, fs.readSync(this.file, piece, 0, length, Number(offset)));
  }
}

class Output {
  constructor(path, isNew) {
    this.path = path;
    this.isNew = isNew;
    this.unfinished = `${path}.${process.pid}-${outputs++}.unfinished`;
    this.file = fs.openSync(this.unfinished, "w");
  }

  write(bytes) {
    refusing(() => fs.writeFileSync(this.file, bytes));
  }

  sync() {
    refusing(() => fs.fsyncSync(this.file));
  }

  commit() {
    if (this.isNew) {
      // The unfinished name goes with the output.
      refusing(() => fs.linkSync(this.unfinished, this.path));
      this[Symbol.dispose]();
      return;
    }
    refusing(() => fs.renameSync(this.unfinished, this.path));
    this.close();
  }

  [Symbol.dispose]() {
    if (this.file === undefined) return;
    this.close();
    fs.rmSync(this.unfinished, { force: true });
  }

  close() {
    fs.closeSync(this.file);
    this.file = undefined;
  }
}
