// The connector without the host, against a server of its own: `npm test`.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, test } from "node:test";

import { Connector } from "./connector.js";

const PAGES = {
  "/items": [200, { items: [{ id: 1, name: "a", more: true }], next: "p2" }],
  "/items?after=p2": [200, { items: [{ id: 2 }] }],
  "/broken/items": [401, {}],
  "/busy/items": [200, { items: [{ id: 3 }] }],
};

let failures = 0;
const server = createServer((request, response) => {
  if (request.url.startsWith("/busy") && failures++ < 2) {
    response.writeHead(503, { "retry-after": "0" }).end("busy");
    return;
  }
  const [status, page] = PAGES[request.url];
  response.writeHead(status).end(JSON.stringify(page));
});
let base;

before(async () => {
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  base = `http://127.0.0.1:${server.address().port}`;
});
after(() => server.close());

async function read(base_url) {
  const rows = [];
  for await (const page of new Connector({ base_url }).read({})) rows.push(...page);
  return rows;
}

test("pages follow each other", async () => {
  const rows = await read(base);
  assert.deepEqual(rows.map((row) => row.id), [1, 2]);
  assert.ok(!("more" in rows[0]));
});

test("a busy server is asked again", async () => {
  const rows = await read(`${base}/busy`);
  assert.deepEqual(rows.map((row) => row.id), [3]);
});

test("a refusal says who acts", async () => {
  await assert.rejects(read(`${base}/broken`), { kind: "auth" });
});
