// The connector without the host: `npm test`.

import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, beforeEach, test } from "node:test";

import { Connector } from "./connector.js";
import { checkedConfig, Rows } from "./rapidbyte/rapidbyte.js";

const TARGET = { stream: "numbers", columns: { n: "int64 not null", label: "string" }, writeMode: "replace" };
const ROWS = new Rows({ n: [1, 2n ** 60n], label: ["one", null] }, 2);

let folder, connector;
beforeEach(() => {
  if (folder) rmSync(folder, { recursive: true });
  folder = mkdtempSync(join(tmpdir(), "connector-"));
  connector = new Connector({ path: join(folder, "{stream}.jsonl") });
});
after(() => rmSync(folder, { recursive: true }));

test("rows are there after the commit and not before", () => {
  assert.ok(connector.plan(TARGET).isNew);
  const writer = connector.begin(TARGET);
  writer.write(ROWS);
  assert.ok(!readdirSync(folder).includes("numbers.jsonl"));
  const { location, bytes } = writer.commit();
  const text = readFileSync(location, "utf8");
  assert.equal(text, '{"n":1,"label":"one"}\n{"n":1152921504606846976,"label":null}\n');
  assert.equal(text.length, bytes);
  assert.ok(!connector.plan(TARGET).isNew);
});

test("what is given up leaves nothing", () => {
  const writer = connector.begin(TARGET);
  writer.write(ROWS);
  writer.abort();
  assert.deepEqual(readdirSync(folder), []);
});

test("an invalid configuration is refused", () => {
  for (const config of [{ file: "a" }, { path: 1 }, {}]) {
    assert.throws(() => checkedConfig(Connector.config, config), { kind: "config" });
  }
});
