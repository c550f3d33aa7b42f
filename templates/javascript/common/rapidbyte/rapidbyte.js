// What a connector of Rapidbyte in JavaScript is made of.
//
// `connector.js` has a class `Connector`; `glue.js` turns it into what `rapidbyte/wit` says. Nothing
// here needs Arrow: rows are objects or arrays of values, and a component that `rapidbyte connector
// build` puts around them makes Arrow batches of them, and them of batches.

const KINDS = ["config", "auth", "connection", "transient", "rate-limited", "data", "schema", "internal"];

/**
 * What went wrong, for the person who reads it.
 *
 * `kind` says who acts: `config` and `auth` (the operator), `connection`, `transient` and
 * `rate-limited` (a retry; the last one after `retryAfterMs`), `data` and `schema` (whoever owns the
 * data), `internal` (you). `code` is stable and short, `message` a lower-case fragment; `more` may have
 * `hint` (what to do next), `stream`, `column`, `location` and `retryAfterMs`.
 */
export class ConnectorError extends Error {
  constructor(kind, code, message, more = {}) {
    if (!KINDS.includes(kind)) {
      throw new RangeError(`an error has one of the kinds ${KINDS.join(", ")}`);
    }
    super(message);
    Object.assign(this, { kind, code, ...more });
  }
}

/** A batch as columns: for each column's name the array of its values. The fastest way. */
export class Columns {
  constructor(values) {
    this.values = values;
  }
}

/** Everything that was yielded before can be gone on behind with this value (as JSON). */
export class Checkpoint {
  constructor(cursor) {
    this.cursor = cursor;
  }
}

/** Nothing came in time; the host asks again. */
export class Idle {}

/** Rows to be written: objects, when gone through; or `columns`, an array of values for each name. */
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
    const rows = new Array(this.length);
    for (let at = 0; at < rows.length; at++) {
      const row = {};
      for (let of = 0; of < columns.length; of++) row[columns[of][0]] = columns[of][1][at];
      rows[at] = row;
    }
    return rows;
  }
}

/** Refuses unknown and missing keys and values of another type; fills defaults in. */
export function checkedConfig(schema, config) {
  const properties = schema.properties ?? {};
  const refuse = (code, message, key, hint) => {
    throw new ConnectorError("config", code, message, { location: `config.${key}`, hint });
  };
  for (const [key, value] of Object.entries(config)) {
    if (!Object.hasOwn(properties, key)) {
      const known = Object.keys(properties).join(", ") || "there is none";
      refuse("unknown_key", `unknown key \`${key}\``, key, `the keys are: ${known}`);
    }
    const { type, minimum } = properties[key];
    if (!hasType(value, type)) refuse("invalid_config", `\`${key}\` is no ${type}`, key);
    if (minimum !== undefined && value < minimum) {
      refuse("invalid_config", `\`${key}\` is less than ${minimum}`, key);
    }
  }
  for (const key of schema.required ?? []) {
    if (!Object.hasOwn(config, key)) refuse("missing_key", `the key \`${key}\` is missing`, key);
  }
  const defaults = Object.entries(properties).filter(([, property]) => "default" in property);
  return { ...Object.fromEntries(defaults.map(([key, p]) => [key, p.default])), ...config };
}

function hasType(value, wanted) {
  if (wanted === undefined) return true;
  if (wanted === "integer") return Number.isSafeInteger(value);
  if (wanted === "array") return Array.isArray(value);
  if (wanted === "object") {
    return typeof value === "object" && value !== null && !Array.isArray(value);
  }
  return typeof value === wanted;
}
