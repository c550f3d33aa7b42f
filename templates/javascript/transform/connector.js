// {{name}}: a transform that hides the text of a column. Replace it with your own step.

import { ConnectorError } from "./rapidbyte/rapidbyte.js";

export class Connector {
  static connectorName = "{{name}}";
  static version = "0.1.0";
  static description = "Hides the text of a column";
  // The keys of `config:`, as a JSON Schema; other keys are refused.
  // The values are checked by `type`, `enum`, `minimum`, `maximum`, `pattern` and `items`; check anything
  // else in the constructor.
  static config = {
    properties: {
      column: { type: "string", description: "The text column to hide." },
    },
    required: ["column"],
  };

  constructor(config) {
    this.column = config.column;
  }

  /**
   * The columns and the key behind the transform. The answer must depend on the configuration and on the relation
   * alone. A column that keeps its name and type also keeps the type that it has in the source.
   */
  plan(relation) {
    if (!/^string( not null)?$/.test(relation.columns[this.column])) {
      const hint = "name a column of the type string";
      throw new ConnectorError("schema", "unknown_column", `there is no text column ${this.column}`, { column: this.column, hint });
    }
    return relation;
  }

  /**
   * The rows that come of some rows: as many as you like, and of these rows alone, because the host gives the same rows
   * again when it retries a stream. `rows.columns` has the same values as an array for each column; returning `Columns`
   * with arrays is faster than returning objects.
   */
  transform(relation, rows) {
    const hidden = (text) => (text === null ? null : "***");
    return rows.toArray().map((row) => ({ ...row, [this.column]: hidden(row[this.column]) }));
  }
}
