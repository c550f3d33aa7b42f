// Lets tests run without the host: `node --import ./rapidbyte/native.mjs --test`. What the host would
// give as `rapidbyte:connector/files` comes from `native-files.mjs`.

import { register } from "node:module";

const files = new URL("native-files.mjs", import.meta.url).href;
const hooks = `export function resolve(specifier, context, next) {
  const isHost = specifier.startsWith("rapidbyte:connector/files");
  return isHost ? { url: ${JSON.stringify(files)}, shortCircuit: true } : next(specifier, context);
}`;
register(`data:text/javascript,${encodeURIComponent(hooks)}`);
