// The connector without the host: `npm test`.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Connector } from "./connector.js";
import { Checkpoint, checkedConfig, Columns } from "./rapidbyte/rapidbyte.js";

/** How many rows come, and the last checkpoint. */
function read(rows, request) {
  let [given, last] = [0, undefined];
  for (const step of new Connector({ rows }).read({ stream: "numbers", batchBytes: 1 << 20, ...request })) {
    if (step instanceof Columns) given += step.values.n.length;
    if (step instanceof Checkpoint) last = step.cursor;
  }
  return [given, last];
}

test("all rows come", () => {
  assert.deepEqual(read(25_000, { incremental: false }), [25_000, undefined]);
});

test("a read goes on behind its cursor", () => {
  assert.deepEqual(read(25_000, { incremental: true }), [25_000, 24_999]);
  assert.deepEqual(read(25_000, { incremental: true, cursor: 9_999 }), [15_000, 24_999]);
  assert.deepEqual(read(25_000, { incremental: true, cursor: 24_999 }), [0, undefined]);
});

test("an invalid configuration is refused", () => {
  for (const config of [{ row: 1 }, { rows: "1" }, { rows: -1 }, {}]) {
    assert.throws(() => checkedConfig(Connector.config, config), { kind: "config" });
  }
});
