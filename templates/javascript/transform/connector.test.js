// The connector without the host: `npm test`.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Connector } from "./connector.js";
import { checkedConfig, Rows } from "./rapidbyte/rapidbyte.js";

const PEOPLE = { stream: "people", columns: { id: "int64 not null", name: "string" }, primaryKey: ["id"] };

test("texts are hidden and everything else stays", () => {
  const connector = new Connector({ column: "name" });
  assert.deepEqual(connector.plan(PEOPLE), PEOPLE);
  const rows = connector.transform(PEOPLE, new Rows({ id: [1, 2n ** 60n], name: ["Ada", null] }, 2));
  assert.deepEqual(rows, [
    { id: 1, name: "***" },
    { id: 2n ** 60n, name: null },
  ]);
});

test("a column that has no text is refused", () => {
  for (const column of ["id", "email"]) {
    assert.throws(() => new Connector({ column }).plan(PEOPLE), { code: "unknown_column" });
  }
});

test("an invalid configuration is refused", () => {
  for (const config of [{ columns: "name" }, { column: 1 }, {}]) {
    assert.throws(() => checkedConfig(Connector.config, config), { kind: "config" });
  }
});
