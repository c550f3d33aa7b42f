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
    const after = response.headers.get("retry-after") ?? "";
    const retryAfterMs = /^\d{1,9}$/.test(after) ? Number(after) * 1000 : undefined;
    return new ConnectorError("rate-limited", "http_rate_limited", text, { retryAfterMs });
  }
  if (status === 401 || status === 403) {
    const hint = "check the credentials in the configuration";
    return new ConnectorError("auth", "http_unauthorized", text, { hint });
  }
  return new ConnectorError(status >= 500 ? "transient" : "config", "http_unexpected_status", text);
}
