// Lets tests run without the host: `node --import ./rapidbyte/native.mjs --test`. What the host would
// give as `rapidbyte:connector/files` comes from `native-files.mjs`, and requests by its `wasi:http`
// come from `native-exchange.mjs`.

import { register } from "node:module";

const here = (file) => new URL(file, import.meta.url).href;
const hooks = `export function resolve(specifier, context, next) {
  const natively = (url) => ({ url, shortCircuit: true });
  if (specifier.startsWith("rapidbyte:connector/files")) return natively(${JSON.stringify(here("native-files.mjs"))});
  if (specifier === "./exchange.js") return natively(${JSON.stringify(here("native-exchange.mjs"))});
  return next(specifier, context);
}`;
register(`data:text/javascript,${encodeURIComponent(hooks)}`);
