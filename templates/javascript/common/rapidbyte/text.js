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

/** The values of a column. */
export function arrayText(values, column) {
  if (!hasSpecial(values)) return JSON.stringify(values);
  return `[${values.map((value) => valueText(value, column)).join(",")}]`;
}

/** A row. */
export function objectText(row) {
  if (!hasSpecial(Object.values(row))) return JSON.stringify(row);
  const entries = Object.entries(row).filter(([, value]) => value !== undefined);
  return `{${entries.map(([key, value]) => `${JSON.stringify(key)}:${valueText(value, key)}`).join(",")}}`;
}

/** The values of a column of a type; a whole number beyond 2^53 stands as a text in it. */
export function columnValues(text, type) {
  const values = JSON.parse(text);
  if (!/^u?int64\b/.test(type) || !text.includes('"')) return values;
  return values.map((value) => (typeof value === "string" ? BigInt(value) : value));
}

function valueText(value, column) {
  if (typeof value === "bigint") return value.toString();
  if (typeof value === "number") return numberText(value, column);
  if (value === null || value === undefined) return "null";
  const isLost = value instanceof Map || value instanceof Set || (value instanceof Date && Number.isNaN(value.getTime()));
  if (isLost) unwritable(value, column);
  if (typeof value !== "object" || typeof value.toJSON === "function") {
    return JSON.stringify(value) ?? unwritable(value, column);
  }
  if (Array.isArray(value)) {
    return `[${value.map((item) => valueText(item, column)).join(",")}]`;
  }
  const entries = Object.entries(value).filter(([, item]) => item !== undefined);
  return `{${entries.map(([key, item]) => `${JSON.stringify(key)}:${valueText(item, column)}`).join(",")}}`;
}

function numberText(value, column) {
  if (Object.is(value, -0)) return "-0.0";
  if (!Number.isFinite(value)) {
    const text = `${value} cannot be written as JSON`;
    throw new ConnectorError("data", "json_not_finite", text, { column, hint: "use null for NaN and infinities" });
  }
  // A whole number of this size may have been rounded before it came here: a float column takes its
  // text, and an integer column refuses it.
  return Number.isSafeInteger(value) || !Number.isInteger(value) ? `${value}` : value.toExponential();
}

function unwritable(value, column) {
  const kind = typeof value === "object" ? (value.constructor?.name ?? "value") : typeof value;
  const text = `a ${kind} cannot be written as JSON`;
  throw new ConnectorError("data", "not_json", text, { column, hint: "use a string for a value without a JSON type" });
}
