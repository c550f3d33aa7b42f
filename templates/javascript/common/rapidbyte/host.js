// Host functions for `glue.js`: errors in the form of the contract.

import { log } from "rapidbyte:connector/log@0.2.0";

import { ConnectorError, KINDS } from "./rapidbyte.js";

/** The JSON Schema of the configuration: `Connector.config`, closed. */
export const schemaOfConfig = (connector) => ({ type: "object", additionalProperties: false, ...connector.config });

/** Errors of the connector as those of the contract; what was not foreseen is the author's. */
export function guarded(stream, work) {
  const refuse = (error) => {
    throw explained(error, stream);
  };
  try {
    const result = work();
    return typeof result?.then === "function" ? result.catch(refuse) : result;
  } catch (error) {
    return refuse(error);
  }
}

function explained(error, stream) {
  // Of an import: the contract's own.
  const { kind, code, message } = error?.payload ?? {};
  if (KINDS.includes(kind?.tag) && typeof code === "string" && typeof message === "string") {
    return { ...error.payload, stream: error.payload.stream ?? stream };
  }
  if (error instanceof ConnectorError) return described(error, stream);
  if (error?.message === "out of memory") {
    const hint = "set resources.memory to a larger value, or give fewer rows at once";
    return described(new ConnectorError("internal", "memory_limit", "the connector is out of memory", { hint }), stream);
  }
  log("error", `${error}\n${error?.stack ?? ""}`);
  const hint = "the log above has the stack";
  return described(new ConnectorError("internal", "javascript", `${error}`, { hint }), stream);
}

export function described(error, stream) {
  const kind = { tag: error.kind };
  if (error.kind === "rate-limited") {
    kind.val = error.retryAfterMs === undefined ? undefined : BigInt(error.retryAfterMs);
  }
  const { code, message, hint, column, location } = error;
  return { kind, code, message, hint, stream: error.stream ?? stream, column, location };
}
