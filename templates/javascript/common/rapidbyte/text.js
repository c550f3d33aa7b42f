// Values as JSON and back, with nothing changed on the way: `JSON.stringify` alone would make NULL of NaN and
// lose the sign of -0, and does not take a BigInt.

import { ConnectorError } from "./rapidbyte.js";

const MAX_EXACT = Number.MAX_SAFE_INTEGER;

/**
 * Whether `JSON.stringify` would change one of some values, or refuse one that can be written.
 *
 * Counted and inlined: in the engine of a component `for … of`, and a function for each value, take
 * twenty times as long.
 */
function hasSpecial(values) {
  for (let at = 0, count = values.length; at < count; at++) {
    const value = values[at];
    if (typeof value === "number") {
      if (value > MAX_EXACT || value < -MAX_EXACT || value !== value) return true;
      if (value === 0 && 1 / value < 0) return true;
    } else if (typeof value !== "string" && typeof value !== "boolean") {
      if (value !== null && value !== undefined) return true;
    }
  }
  return false;
}

/** The values of a column, with the type of the column if it is known. */
export function arrayText(values, column, type) {
  if (!hasSpecial(values)) return JSON.stringify(values);
  // Counted, because `map` passes over holes.
  const texts = new Array(values.length);
  for (let at = 0; at < texts.length; at++) texts[at] = valueText(values[at], column, type);
  return `[${texts.join(",")}]`;
}

/**
 * The columns of a batch, each as the text of its values.
 *
 * `names` are the columns that are due, `types` the types of all columns that may come. `said` begins the messages.
 */
export function columnsText(values, names, types, said) {
  for (const name of Object.keys(values)) {
    if (!Object.hasOwn(types, name)) {
      const hint = "declare the column, or leave it out";
      throw new ConnectorError("internal", "no_column", `${said} the column \`${name}\`, which nobody declared`, { column: name, hint });
    }
  }
  return names.map((name) => {
    if (!Array.isArray(values[name])) {
      const hint = "give an array for each column";
      throw new ConnectorError("internal", "no_column", `${said} no array of values for \`${name}\``, { column: name, hint });
    }
    return arrayText(values[name], name, types[name]);
  });
}

/** Rows, one a line. `types` are the types of their columns. */
export function rowsText(rows, types) {
  // Counted, because `map` passes over holes.
  const lines = new Array(rows.length);
  for (let at = 0; at < lines.length; at++) lines[at] = objectText(rows[at], types);
  return lines.join("\n");
}

/** A row. `types` are the types of its columns, if they are known. */
export function objectText(row, types = {}) {
  const isPlain = row !== null && typeof row === "object" && Object.getPrototypeOf(row) === Object.prototype;
  if (!isPlain) checkRow(row);
  if (!hasSpecial(Object.values(row))) return JSON.stringify(row);
  const entries = Object.entries(row).filter(([, value]) => value !== undefined);
  return `{${entries.map(([key, value]) => `${JSON.stringify(key)}:${valueText(value, key, types[key])}`).join(",")}}`;
}

/** Refuses what has no values of its own: it would become a row of NULLs, or no row. */
function checkRow(row) {
  const isObject = row !== null && typeof row === "object";
  let inherited = 0;
  if (isObject) for (const _ in row) inherited++;
  const own = isObject ? Object.keys(row).length : 0;
  if (own > 0 && inherited === own && !Array.isArray(row) && typeof row.toJSON !== "function") return;
  const kind = isObject ? (row.constructor?.name ?? "object") : row === null ? "null" : typeof row;
  const hint = "give a plain object for each row, with the names of the columns as its keys";
  throw new ConnectorError("internal", "not_a_batch", `${kind} in the place of a row`, { hint });
}

/** The values of a column of a type; a whole number beyond 2^53 stands as a text in it. */
export function columnValues(text, type) {
  const values = JSON.parse(text);
  if (!/^u?int64\b/.test(type) || !text.includes('"')) return values;
  return values.map((value) => (typeof value === "string" ? BigInt(value) : value));
}

function valueText(value, column, type) {
  if (typeof value === "bigint") return value.toString();
  if (typeof value === "number") return numberText(value, column, type);
  if (value === null || value === undefined) return "null";
  if (Array.isArray(value)) return arrayText(value, column, type);
  if (typeof value === "object" && isLost(value)) unwritable(value, column);
  if (typeof value !== "object" || typeof value.toJSON === "function") {
    return JSON.stringify(value) ?? unwritable(value, column);
  }
  const entries = Object.entries(value).filter(([, item]) => item !== undefined);
  return `{${entries.map(([key, item]) => `${JSON.stringify(key)}:${valueText(item, column, type)}`).join(",")}}`;
}

/** Whether an object has its values elsewhere than in its properties, so that JSON would not have them. */
function isLost(value) {
  if (value instanceof Date) return Number.isNaN(value.getTime());
  const isKnown = Object.getPrototypeOf(value) === Object.prototype || typeof value.toJSON === "function";
  return !isKnown && (ArrayBuffer.isView(value) || Object.keys(value).length === 0);
}

function numberText(value, column, type = "") {
  if (Object.is(value, -0)) return /int|decimal/.test(type) && !/float|json/.test(type) ? "0" : "-0.0";
  if (!Number.isFinite(value)) {
    const text = `${value} cannot be written as JSON`;
    throw new ConnectorError("data", "json_not_finite", text, { column, hint: "use null for NaN and infinities" });
  }
  // A whole number of this size may have been rounded before it came here: a float column takes its
  // text, and an integer column refuses it.
  const isExact = /decimal|json/.test(type) && !/float/.test(type);
  if (isExact && Number.isInteger(value) && !Number.isSafeInteger(value) && (/decimal/.test(type) || Math.abs(value) < 1e21)) {
    const hint = "use a BigInt, or a string with all digits; for a document, give its text instead of its parsed value";
    const text = `JavaScript may have rounded ${value}, which is beyond 2^53`;
    throw new ConnectorError("data", "value_does_not_fit", text, { column, hint });
  }
  return Number.isSafeInteger(value) || !Number.isInteger(value) ? `${value}` : value.toExponential();
}

function unwritable(value, column) {
  const kind = typeof value === "object" ? (value.constructor?.name ?? "value") : typeof value;
  const text = `a ${kind} cannot be written as JSON`;
  throw new ConnectorError("data", "not_json", text, { column, hint: "use a string for a value without a JSON type" });
}
