// Requests to the servers that the configuration names with `x-grant`, and no others, by `fetch`.
//
// They need a project of `rapidbyte connector new --http`. The host checks the server, does TLS with a
// checked certificate, and ends what takes too long.

import { ConnectorError } from "./rapidbyte.js";

/** The JSON of an answer whose status is 200; other ones are errors that the host acts on. */
export async function getJson(url, query = {}, headers = {}) {
  const parameters = Object.entries(query).map((pair) => pair.map(encodeURIComponent).join("="));
  const separator = url.includes("?") ? "&" : "?";
  const asked = parameters.length === 0 ? url : url + separator + parameters.join("&");
  let response, text;
  try {
    response = await fetch(asked, { headers: { accept: "application/json", ...headers } });
    text = await response.text();
  } catch (error) {
    const hint = "is the server up, and granted? `rapidbyte plan` shows what is";
    throw new ConnectorError("connection", "connect_failed", `no answer: ${error.message}`, { hint });
  }
  if (response.status !== 200) throw refused(response, text);
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new ConnectorError("data", "http_not_json", `the answer is not JSON: ${error.message}`, { hint: "check the URL" });
  }
}

/** Who acts on a status. */
function refused(response, body) {
  const { status } = response;
  const text = `the server answers ${status}: ${body.slice(0, 200)}`;
  if (status === 429 || status === 503) {
    const retryAfterMs = waitMs(response.headers.get("retry-after") ?? "");
    return new ConnectorError("rate-limited", "http_rate_limited", text, { retryAfterMs });
  }
  if (status === 401 || status === 403) {
    const hint = "check the credentials in the configuration";
    return new ConnectorError("auth", "http_unauthorized", text, { hint });
  }
  const passes = status >= 500 || status === 408 || status === 425;
  return new ConnectorError(passes ? "transient" : "config", "http_unexpected_status", text);
}

/** The milliseconds of a number of seconds or of a date; nothing for anything else. */
function waitMs(retryAfter) {
  if (/^\d+$/.test(retryAfter)) return Math.min(Number(retryAfter), 1e9) * 1000;
  const at = / GMT$/.test(retryAfter) ? Date.parse(retryAfter) : NaN;
  return Number.isNaN(at) ? undefined : Math.max(0, at - Date.now());
}
