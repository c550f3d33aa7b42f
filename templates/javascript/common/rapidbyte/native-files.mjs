// The system's own files, as far as `files.js` uses them.

import * as fs from "node:fs";
import { dirname } from "node:path";

/** An error as those of the host come. */
function refusing(work) {
  try {
    return work();
  } catch (error) {
    const payload = { kind: { tag: "config" }, code: "file_io", message: error.message };
    throw Object.assign(error, { payload });
  }
}

export const find = (path) => (fs.existsSync(path) ? [{ path, size: BigInt(fs.statSync(path).size) }] : []);

export const probe = (path) => refusing(() => fs.accessSync(dirname(path), fs.constants.W_OK));

export const open = (path) => refusing(() => new Input(fs.openSync(path, "r")));

export const create = (path) => refusing(() => new Output(path));

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
  constructor(path) {
    this.path = path;
    this.unfinished = `${path}.unfinished`;
    this.file = fs.openSync(this.unfinished, "w");
  }

  write(bytes) {
    refusing(() => fs.writeFileSync(this.file, bytes));
  }

  sync() {
    refusing(() => fs.fsyncSync(this.file));
  }

  commit() {
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
