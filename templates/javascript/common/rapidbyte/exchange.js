// One request over the host's `wasi:http`, for `http.js`.
//
// Each resource is closed when it is done with, because the engine closes none by itself: a read of
// many pages would hold thousands of them.

import { handle } from "wasi:http/outgoing-handler@0.2.4";
import { Fields, OutgoingBody, OutgoingRequest, RequestOptions } from "wasi:http/types@0.2.4";

import { ConnectorError } from "./rapidbyte.js";

const READ_BYTES = 1n << 18n;
const WRITE_BYTES = 1 << 12;
const DISPOSE = Symbol.dispose ?? Symbol.for("dispose");

/** Runs `work` with a resource, and closes it. */
function using(resource, work) {
  try {
    return work(resource);
  } finally {
    resource[DISPOSE]();
  }
}

/** The status, the headers and the bytes of an answer. */
export function exchange(method, url, { headers, body, timeout, maxBytes }) {
  const parts = /^(https?):\/\/([^/?#]+)([^#]*)/i.exec(url);
  if (!parts) {
    throw new ConnectorError("config", "http_invalid_request", `${JSON.stringify(url)} is not a URL of HTTP`);
  }
  const [, scheme, authority, rest] = parts;
  let hasAnswer = false;
  try {
    const future = sent(method, { scheme, authority, rest }, headers, body, timeout);
    return using(future, () => {
      using(future.subscribe(), (ready) => ready.block());
      return using(taken(future.get()), (response) => {
        hasAnswer = true;
        return received(response, maxBytes);
      });
    });
  } catch (error) {
    if (error instanceof ConnectorError) throw error;
    const explained = explain(isPayload(error) ? error.payload : error, authority);
    explained.isBeforeAnswer = !hasAnswer && ["connection", "transient"].includes(explained.kind);
    throw explained;
  }
}

/** Whether the host's function failed, rather than this code. */
function isPayload(error) {
  return typeof error === "object" && error !== null && "payload" in error;
}

function sent(method, { scheme, authority, rest }, headers, body, timeout) {
  const utf8 = new TextEncoder();
  const entries = Object.entries(headers).map(([name, value]) => [name, utf8.encode(value)]);
  if (body !== undefined) entries.push(["content-length", utf8.encode(String(body.length))]);
  // The request takes the fields, and `handle` the request and the options.
  const request = new OutgoingRequest(Fields.fromList(entries));
  const tag = method.toLowerCase();
  request.setMethod(METHODS.includes(tag) ? { tag } : { tag: "other", val: method });
  request.setScheme({ tag: scheme.toUpperCase() });
  request.setAuthority(authority);
  request.setPathWithQuery(rest.startsWith("/") ? rest : `/${rest}`);
  const options = new RequestOptions();
  const nanoseconds = BigInt(Math.round(timeout * 1e9));
  options.setConnectTimeout(nanoseconds);
  options.setFirstByteTimeout(nanoseconds);
  options.setBetweenBytesTimeout(nanoseconds);
  const outgoing = body === undefined ? undefined : request.body();
  const future = handle(request, options);
  if (outgoing !== undefined) written(outgoing, body);
  return future;
}

const METHODS = ["get", "head", "post", "put", "delete", "options", "patch"];

function written(outgoing, body) {
  try {
    using(outgoing.write(), (stream) => {
      for (let at = 0; at < body.length; at += WRITE_BYTES) {
        stream.blockingWriteAndFlush(body.subarray(at, at + WRITE_BYTES));
      }
    });
  } catch {
    // A server may answer before it has read everything; what the answer says counts.
    outgoing[DISPOSE]();
    return;
  }
  OutgoingBody.finish(outgoing, undefined);
}

/** Of what `get` gives: a result in a result. */
function taken(found) {
  let value = found;
  while (value?.tag === "ok") value = value.val;
  if (value?.tag === "err") throw value.val;
  return value;
}

function received(response, maxBytes) {
  const status = response.status();
  const headers = using(response.headers(), (fields) => {
    const latin1 = (bytes) => String.fromCharCode(...bytes);
    const named = {};
    for (const [name, value] of fields.entries()) {
      const key = name.toLowerCase();
      named[key] = key in named ? `${named[key]}, ${latin1(value)}` : latin1(value);
    }
    return named;
  });
  const pieces = using(response.consume(), (body) => using(body.stream(), (stream) => piecesOf(stream, maxBytes)));
  const bytes = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    bytes.set(piece, at);
    at += piece.length;
  }
  return { status, headers, body: bytes };
}

function piecesOf(stream, maxBytes) {
  const pieces = [];
  let length = 0;
  for (;;) {
    let piece;
    try {
      piece = stream.blockingRead(READ_BYTES);
    } catch (error) {
      const payload = error?.payload ?? error;
      if (payload?.tag === "closed") return pieces;
      const failed = payload?.val;
      const why = failed?.toDebugString === undefined ? String(error) : using(failed, () => failed.toDebugString());
      throw new ConnectorError("connection", "connection_lost", `the answer ends early: ${why}`);
    }
    length += piece.length;
    if (length > maxBytes) {
      const text = `an answer of more than ${maxBytes} bytes`;
      throw new ConnectorError("data", "http_body_too_large", text, { hint: "ask for smaller pages" });
    }
    pieces.push(piece);
  }
}

/** Who acts on what the host refuses; the network is at fault otherwise. */
const KINDS = {
  network_not_granted: "config",
  address_not_granted: "config",
  tls_bad_setting: "config",
  tls_bad_file: "config",
  tls_disabled: "config",
  tls_required: "config",
  tls_wrong_name: "auth",
  tls_no_san: "auth",
  tls_expired: "auth",
  tls_unknown_ca: "auth",
  tls_self_signed: "auth",
  timeout: "transient",
  http_head_too_large: "data",
  http_invalid_request: "internal",
  too_many_connections: "internal",
};

/** Why a header is not taken. */
const REFUSED = ["invalid-syntax", "forbidden", "immutable"];

/** The host's own words, `code: message` and a hint below, or the name of what happened. */
function explain(found, location) {
  const said = typeof found?.val === "string" ? /^([a-z_]+): ([^\n]*)\n?([^]*)$/.exec(found.val) : null;
  if (said) {
    const [, code, message, hint] = said;
    return new ConnectorError(KINDS[code] ?? "connection", code, message, { hint: hint || undefined, location });
  }
  if (found === undefined || REFUSED.includes(found?.tag)) {
    const text = "the URL, the method or a header has forbidden characters";
    return new ConnectorError("config", "http_invalid_request", text, { location });
  }
  const name = found.tag ?? (found instanceof Error ? found.message : found);
  return new ConnectorError("connection", "connect_failed", `no answer: ${name}`, { hint: "check that the server is up", location });
}
