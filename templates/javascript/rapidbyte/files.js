// Files that the configuration names with `x-grant`, and no others.

import { open } from "rapidbyte:connector/files@0.1.0";

import { ConnectorError } from "./rapidbyte.js";

const PIECE_BYTES = 1 << 18;

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
  const refuse = (code, text) => {
    throw new ConnectorError("data", code, text, { location: `${path}:${number + 1}` });
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
    if (rest.length > maxLineLength) refuse("line_too_long", `a line longer than ${maxLineLength}`);
  }
  rest += decoded();
  if (rest !== "") yield [number + 1, rest];
}
