// The parts of a Rapidbyte connector in JavaScript.
//
// `connector.js` has a class `Connector`; `glue.js` makes it implement `rapidbyte/wit`. Nothing
// here needs Arrow: rows are objects or arrays of values. An adapter that `rapidbyte connector build`
// puts around the connector converts between rows and Arrow batches.

export const KINDS = ["config", "auth", "connection", "transient", "rate-limited", "data", "schema", "internal"];

/**
 * An error, for the person who reads it.
 *
 * `kind` says who must act: `config` and `auth` (the operator), `connection`, `transient` and
 * `rate-limited` (a retry; the last one after `retryAfterMs`), `data` and `schema` (the owner of the
 * data), `internal` (you). `code` is stable and short, `message` a lower-case fragment; `more` may have
 * `hint` (what to do next), `stream`, `column`, `location` and `retryAfterMs`.
 */
export class ConnectorError extends Error {
  constructor(kind, code, message, more = {}) {
    if (!KINDS.includes(kind)) {
      throw new RangeError(`an error has one of the kinds ${KINDS.join(", ")}`);
    }
    if (typeof code !== "string" || typeof message !== "string") {
      throw new TypeError("the code and the message of an error are strings");
    }
    super(message);
    const { retryAfterMs } = more;
    if (retryAfterMs !== undefined && !(Number.isSafeInteger(retryAfterMs) && retryAfterMs >= 0)) {
      throw new RangeError("retryAfterMs is a number of whole milliseconds, 0 or more");
    }
    Object.assign(this, { kind, code, retryAfterMs });
    for (const name of ["hint", "stream", "column", "location"]) {
      // A line number is a place, too.
      this[name] = more[name] === undefined || more[name] === null ? undefined : `${more[name]}`;
    }
  }
}

/** A batch as columns: for each column's name the array of its values. This is the fastest form. */
export class Columns {
  constructor(values) {
    this.values = values;
  }
}

/** A place to resume: with this value (as JSON), a read can resume after everything yielded before. */
export class Checkpoint {
  constructor(cursor) {
    this.cursor = cursor;
  }
}

/** No rows arrived in time; the host asks again. */
export class Idle {}

/** Rows to write. Iteration gives objects; `columns` has an array of values for each name. */
export class Rows {
  constructor(columns, length) {
    this.columns = columns;
    this.length = length;
  }

  *[Symbol.iterator]() {
    yield* this.toArray();
  }

  /** All of them. */
  toArray() {
    const columns = Object.entries(this.columns);
    // Assigning to this name changes the prototype of an object.
    const named = columns.find(([name]) => name === "__proto__");
    const rows = new Array(this.length);
    for (let at = 0; at < rows.length; at++) {
      const row = {};
      if (named) Object.defineProperty(row, named[0], { value: named[1][at], enumerable: true, writable: true, configurable: true });
      for (let of = 0; of < columns.length; of++) if (columns[of] !== named) row[columns[of][0]] = columns[of][1][at];
      rows[at] = row;
    }
    return rows;
  }
}

/**
 * Refuses unknown keys, missing keys and values that `type`, `enum`, `minimum`, `maximum`, `pattern` (a regular
 * expression of JavaScript) or `items` forbids; adds defaults. Other keywords of JSON Schema are not checked.
 */
export function checkedConfig(schema, config) {
  const properties = schema.properties ?? {};
  const refuse = (code, message, key, hint) => {
    throw new ConnectorError("config", code, message, { location: `config.${key}`, hint });
  };
  for (const [key, value] of Object.entries(config)) {
    if (!Object.hasOwn(properties, key)) {
      const known = Object.keys(properties).join(", ") || "there is none";
      refuse("unknown_key", `unknown key \`${key}\``, key, `use one of these keys: ${known}`);
    }
    const problem = problemOf(value, properties[key]);
    if (problem !== undefined) refuse("invalid_config", `\`${key}\` ${problem}`, key);
  }
  for (const key of schema.required ?? []) {
    if (!Object.hasOwn(config, key)) refuse("missing_key", `the key \`${key}\` is missing`, key);
  }
  const defaults = Object.entries(properties).filter(([, property]) => "default" in property);
  return { ...Object.fromEntries(defaults.map(([key, p]) => [key, p.default])), ...config };
}

/** Why a value is refused, without the value: it may be a secret. */
function problemOf(value, wanted) {
  const { type, minimum, maximum, enum: allowed, pattern, items } = wanted;
  if (!hasType(value, type)) return `is not of type ${type}`;
  if (typeof value === "number" && value < minimum) return `is less than ${minimum}`;
  if (typeof value === "number" && value > maximum) return `is more than ${maximum}`;
  if (allowed && !allowed.some((one) => JSON.stringify(one) === JSON.stringify(value))) {
    return `is none of ${allowed.map((one) => JSON.stringify(one)).join(", ")}`;
  }
  if (pattern !== undefined && typeof value === "string" && !new RegExp(pattern, "u").test(value)) {
    return `does not match the pattern ${pattern}`;
  }
  if (items && Array.isArray(value)) {
    for (const [index, item] of value.entries()) {
      const problem = problemOf(item, items);
      if (problem !== undefined) return `has an item (number ${index + 1}) that ${problem}`;
    }
  }
  return undefined;
}

function hasType(value, wanted) {
  if (wanted === undefined) return true;
  if (Array.isArray(wanted)) return wanted.some((one) => hasType(value, one));
  if (wanted === "null") return value === null;
  if (wanted === "integer") return Number.isSafeInteger(value);
  if (wanted === "array") return Array.isArray(value);
  if (wanted === "object") {
    return typeof value === "object" && value !== null && !Array.isArray(value);
  }
  return typeof value === wanted;
}
