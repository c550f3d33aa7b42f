// Requests to the servers that the configuration names with `x-grant`, and no others.
//
// They need a project of `rapidbyte connector new --http`. The host checks the server, does TLS with a
// checked certificate, and ends what takes too long. Use these functions rather than `fetch`, which
// keeps what it opens until the run ends, and never retries.

import { exchange } from "./exchange.js";
import { ConnectorError } from "./rapidbyte.js";

/** How often a request is made at most, until an answer is not a transient failure. */
export const ATTEMPTS = 5;
const FIRST_WAIT_MS = 500;
/** A server that asks for a longer wait gets no retry here: the host retries the stream after it. */
const LONGEST_WAIT_MS = 60_000;
const SAFE = ["GET", "HEAD", "OPTIONS", "PUT", "DELETE"];
const TRANSIENT = [429, 502, 503, 504];

/** The JSON of an answer whose status is 200; other ones are errors that the host acts on. */
export async function getJson(url, query = {}, headers = {}) {
  const parameters = Object.entries(query).map((pair) => pair.map(encodeURIComponent).join("="));
  const separator = url.includes("?") ? "&" : "?";
  const asked = parameters.length === 0 ? url : url + separator + parameters.join("&");
  const response = await request("GET", asked, { headers: { accept: "application/json", ...headers } });
  if (response.status !== 200) throw refused(response, url);
  return response.json();
}

/**
 * Asks, and gives the whole answer: `status`, `headers` (names in small letters), `body` (bytes),
 * `text()` and `json()`. Redirects are answers like any other.
 *
 * `options` has `headers`, `body` (a string or bytes), `timeout` (for connecting, for the beginning of
 * the answer and between two pieces of it; 60 seconds), `maxBytes` (of the answer; 16 MiB), `attempts`
 * and `retry`.
 *
 * The statuses 429, 502, 503 and 504 and failures before an answer are retried, up to `attempts`
 * requests (5). Before the first retry half a second passes, then twice as long each time, with
 * jitter; or what the header `retry-after` says, up to a minute. Only requests that may be repeated
 * are retried: GET, HEAD, OPTIONS, PUT and DELETE, others with `retry: true`. The last answer is
 * given as it is.
 */
export async function request(method, url, options = {}) {
  const { headers = {}, timeout = 60, maxBytes = 16 << 20, attempts = ATTEMPTS } = options;
  const retry = options.retry ?? SAFE.includes(method);
  const body = typeof options.body === "string" ? new TextEncoder().encode(options.body) : options.body;
  for (let attempt = 1; ; attempt++) {
    const mayRetry = retry && attempt < attempts;
    let wait;
    try {
      const response = new Response(await exchange(method, url, { headers, body, timeout, maxBytes }));
      wait = mayRetry ? waitBefore(attempt, response) : undefined;
      if (wait === undefined) return response;
    } catch (error) {
      if (!mayRetry || !error.isBeforeAnswer) throw error;
      wait = backoff(attempt);
    }
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}

/** An answer. */
class Response {
  constructor({ status, headers, body }) {
    Object.assign(this, { status, headers, body });
  }

  text() {
    return new TextDecoder().decode(this.body);
  }

  json() {
    try {
      return JSON.parse(this.text());
    } catch (error) {
      throw new ConnectorError("data", "http_not_json", `the answer is not JSON: ${error.message}`, { hint: "check the URL" });
    }
  }
}

/** The milliseconds before the next attempt; nothing where it would not help or take too long. */
function waitBefore(attempt, { status, headers }) {
  if (!TRANSIENT.includes(status)) return undefined;
  const asked = retryAfterMs(headers["retry-after"] ?? "");
  if (asked === undefined) return backoff(attempt);
  return asked <= LONGEST_WAIT_MS ? asked : undefined;
}

/** Half of it is jitter, so that clients that failed together do not come back together. */
function backoff(attempt) {
  const longest = Math.min(FIRST_WAIT_MS * 2 ** (attempt - 1), LONGEST_WAIT_MS);
  // The seed of `Math.random` may be the seed of the build.
  const random = crypto.getRandomValues(new Uint32Array(1))[0] / 2 ** 32;
  return longest * (1 - random / 2);
}

/** Who acts on a status. */
function refused(response, url) {
  const { status, headers } = response;
  const body = response.text();
  const shown = body.length > 200 ? `${body.slice(0, 200)}…` : body;
  const text = `${String(url).split("?")[0]} answers ${status}: ${shown}`;
  const wait = retryAfterMs(headers["retry-after"] ?? "");
  if (status === 429 || (status === 503 && wait !== undefined)) {
    return new ConnectorError("rate-limited", "http_rate_limited", text, { retryAfterMs: wait });
  }
  if (status >= 500 || status === 408 || status === 425) {
    return new ConnectorError("transient", "http_unavailable", text);
  }
  if (status === 401 || status === 403) {
    const hint = "check the credentials and what they may read";
    return new ConnectorError("auth", "http_unauthorized", text, { hint });
  }
  if (status === 404 || status === 410) {
    return new ConnectorError("config", "http_not_found", text, { hint: "check the path" });
  }
  if (status >= 400) {
    const hint = "change the request as the server's documentation says";
    return new ConnectorError("config", "http_refused", text, { hint });
  }
  return new ConnectorError("data", "http_unexpected_status", text);
}

/** The milliseconds of a number of seconds or of a date; nothing for anything else. */
export function retryAfterMs(text) {
  if (/^\d+$/.test(text)) return Math.min(Number(text), 1e9) * 1000;
  const at = / GMT$/.test(text) ? Date.parse(text) : NaN;
  return Number.isNaN(at) ? undefined : Math.max(0, at - Date.now());
}
