// One request by Node's own `fetch`, for tests without the host: `http.js` then does what it does in the
// component, retries included.

import { ConnectorError } from "./rapidbyte.js";

/** The status, the headers and the bytes of an answer. */
export async function exchange(method, url, { headers, body, timeout, maxBytes }) {
  let response;
  try {
    const signal = AbortSignal.timeout(timeout * 1000);
    response = await fetch(url, { method, headers, body, redirect: "manual", signal });
  } catch (error) {
    const why = error.cause?.message || error.cause?.code || error.message;
    const explained = new ConnectorError("connection", "connect_failed", `no answer: ${why}`, { hint: "check that the server is up" });
    throw Object.assign(explained, { isBeforeAnswer: true });
  }
  let bytes;
  try {
    bytes = new Uint8Array(await response.arrayBuffer());
  } catch (error) {
    throw new ConnectorError("connection", "connection_lost", `the answer ends early: ${error.message}`);
  }
  if (bytes.length > maxBytes) {
    const text = `an answer of more than ${maxBytes} bytes`;
    throw new ConnectorError("data", "http_body_too_large", text, { hint: "ask for smaller pages" });
  }
  return { status: response.status, headers: Object.fromEntries(response.headers), body: bytes };
}
