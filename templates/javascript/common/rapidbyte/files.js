// Files that the configuration names with `x-grant`, and no others.

import { create, createNew, find, open, probe as tryPath } from "rapidbyte:connector/files@0.2.0";

import { ConnectorError } from "./rapidbyte.js";

const PIECE_BYTES = 1 << 18;
const UTF8 = new TextEncoder();

/** Errors of the host as those of a connector, at a path. */
function at(path, work) {
  try {
    return work();
  } catch (error) {
    const found = error?.payload;
    if (!found?.kind) throw error;
    const { code, message, hint } = found;
    throw new ConnectorError(found.kind.tag, code, message, { hint, location: path });
  }
}

/** The bytes of a file, some at a time. */
export function* pieces(path) {
  const file = open(path);
  let at = 0n;
  for (;;) {
    const piece = file.read(at, PIECE_BYTES);
    if (piece.length === 0) return;
    at += BigInt(piece.length);
    yield piece;
  }
}

/** The lines of a file in UTF-8 with their numbers, from 1. */
export function* lines(path, maxLineLength = 1 << 20) {
  const decoder = new TextDecoder("utf-8", { fatal: true });
  let [number, rest] = [0, ""];
  const refuse = (code, text, hint) => {
    throw new ConnectorError("data", code, text, { location: `${path}:${number + 1}`, hint });
  };
  const decoded = (piece) => {
    try {
      return piece ? decoder.decode(piece, { stream: true }) : decoder.decode();
    } catch {
      return refuse("not_utf8", "text that is not UTF-8, here or soon after");
    }
  };
  for (const piece of pieces(path)) {
    const whole = (rest + decoded(piece)).split("\n");
    rest = whole.pop();
    for (const line of whole) yield [++number, line.replace(/\r$/, "")];
    if (rest.length > maxLineLength) refuse("line_too_long", `a line longer than ${maxLineLength}`, "raise maxLineLength");
  }
  rest += decoded();
  if (rest !== "") yield [number + 1, rest];
}

/** Whether there is a file at a path that may be written or read. */
export const exists = (path) => at(path, () => find(path).length > 0);

/** Refuses a path where no file could be created. Leaves none. */
export const probe = (path) => at(path, () => tryPath(path));

/** A file that nobody sees before `commit`, which puts it in the place of an older one, at once. */
export class Output {
  #file;
  #pieces = [];
  #length = 0;

  constructor(path, { isNew = false } = {}) {
    this.path = path;
    this.bytes = 0;
    this.#file = at(path, () => (isNew ? createNew(path) : create(path)));
  }

  /**
   * The same for a file that must not be there: of several writers of one path, also in other runs,
   * the `commit` of one succeeds. That of the others throws `file_exists`, and changes nothing.
   */
  static createNew(path) {
    return new Output(path, { isNew: true });
  }

  /** Appends text in UTF-8, or bytes. */
  write(data) {
    if (typeof data !== "string") {
      this.#handOver();
      this.#write(data);
      return;
    }
    this.#pieces.push(data);
    this.#length += data.length;
    if (this.#length >= PIECE_BYTES) this.#handOver();
  }

  /** Writes everything to the disk and gives the file its name. */
  commit() {
    this.#handOver();
    at(this.path, () => {
      this.#file.sync();
      this.#file.commit();
    });
  }

  /** Leaves nothing. A file that is committed stays. */
  abort() {
    this.#file[Symbol.dispose]();
  }

  #handOver() {
    if (this.#length === 0) return;
    const text = this.#pieces.join("");
    [this.#pieces, this.#length] = [[], 0];
    this.#write(UTF8.encode(text));
  }

  #write(bytes) {
    this.bytes += bytes.length;
    at(this.path, () => this.#file.write(bytes));
  }
}
