// {{name}}: a source that reads records from a JSON API, page by page. Adapt it to your API.

import { getJson } from "./rapidbyte/http.js";
import { ConnectorError } from "./rapidbyte/rapidbyte.js";

const COLUMNS = { id: "int64 not null", name: "string", updated_at: "timestamptz" };

export class Connector {
  static connectorName = "{{name}}";
  static version = "0.1.0";
  static description = "Reads a JSON API";
  // The keys of `config:`, as a JSON Schema; other keys are refused.
  // The values are checked by `type`, `enum`, `minimum`, `maximum`, `pattern` and `items`; check anything
  // else in the constructor.
  static config = {
    properties: {
      base_url: {
        type: "string",
        "x-grant": "url",
        description: "The URL of the API. The connector can reach only this server.",
      },
      token: { type: "string", "x-secret": true, description: "A bearer token." },
    },
    required: ["base_url"],
  };

  constructor(config) {
    this.base = config.base_url.replace(/\/+$/, "");
    this.headers = config.token ? { authorization: `Bearer ${config.token}` } : {};
  }

  streams() {
    return [{ name: "items", columns: COLUMNS, primaryKey: ["id"] }];
  }

  /** Pages are `{"items": […], "next": …}`; the last one has no `next`. */
  async *read(_request) {
    const names = Object.keys(COLUMNS);
    const seen = new Set();
    let query = {};
    for (;;) {
      const page = await getJson(`${this.base}/items`, query, this.headers);
      yield page.items.map((item) => Object.fromEntries(names.map((name) => [name, item[name]])));
      const after = page.next ?? undefined;
      if (after === undefined) return;
      if (seen.has(after)) {
        throw new ConnectorError("data", "http_repeated_page", `the page "${after}" is repeated`);
      }
      seen.add(after);
      query = { after };
    }
  }
}
