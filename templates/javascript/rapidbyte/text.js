// Values as JSON, with nothing changed on the way: `JSON.stringify` alone would make NULL of NaN and
// lose the sign of -0, and does not take a BigInt.

import { ConnectorError } from "./rapidbyte.js";

/** Whether `JSON.stringify` would change a value, or refuse one that can be written. */
function isSpecial(value) {
  switch (typeof value) {
    case "string":
    case "boolean":
    case "undefined":
      return false;
    case "number":
      return Math.abs(value) > Number.MAX_SAFE_INTEGER || value - value !== 0 || Object.is(value, -0);
    default:
      return value !== null;
  }
}

/** The values of a column. */
export function arrayText(values, column) {
  for (const value of values) {
    if (isSpecial(value)) {
      return `[${values.map((value) => valueText(value, column)).join(",")}]`;
    }
  }
  return JSON.stringify(values);
}

/** A row. */
export function objectText(row) {
  for (const key in row) {
    if (isSpecial(row[key])) {
      const entries = Object.entries(row).filter(([, value]) => value !== undefined);
      const texts = entries.map(([key, value]) => `${JSON.stringify(key)}:${valueText(value, key)}`);
      return `{${texts.join(",")}}`;
    }
  }
  return JSON.stringify(row);
}

function valueText(value, column) {
  if (typeof value === "bigint") return value.toString();
  if (typeof value === "number") return numberText(value, column);
  if (value === null || value === undefined) return "null";
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
    throw new ConnectorError("data", "json_not_finite", text, { column });
  }
  // A whole number of this size may have been rounded before it came here: a float column takes its
  // text, and an integer column refuses it.
  return Number.isSafeInteger(value) || !Number.isInteger(value) ? `${value}` : value.toExponential();
}

function unwritable(value, column) {
  const text = `a ${typeof value} cannot be written as JSON`;
  throw new ConnectorError("data", "not_json", text, { column });
}
