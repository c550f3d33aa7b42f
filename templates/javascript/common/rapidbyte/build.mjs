// Makes a component of `connector.js`, for `rapidbyte connector build`: node rapidbyte/build.mjs FILE WORLD

import { writeFile } from "node:fs/promises";

import { componentize } from "@bytecodealliance/componentize-js";

const [file, worldName] = process.argv.slice(2);
// What a world has no use for is not asked of the host.
const disableFeatures = worldName.endsWith("http") ? ["fetch-event"] : ["http", "fetch-event"];
const { component } = await componentize({
  sourcePath: "rapidbyte/glue.js",
  witPath: "rapidbyte/wit",
  worldName,
  disableFeatures,
});
await writeFile(file, component);
