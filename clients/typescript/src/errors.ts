import type { components } from "./openapi.js";

/** What the service says about a failed request (RFC 9457). */
export type Problem = components["schemas"]["Problem"];

/** The arguments of a call are invalid; the message says why. */
export class InvalidInput extends Error {
  override name = "InvalidInput";
}

/** The service reported a problem that a retry does not solve. */
export class ServiceError extends Error {
  override name = "ServiceError";
  /** The response of the service; undefined if there was none. */
  readonly problem: Problem | undefined;

  constructor(message: string, problem?: Problem, options?: ErrorOptions) {
    super(message, options);
    this.problem = problem;
  }
}

/** All attempts failed: no connection, no response in time, or 429, 502, 503 or 504. */
export class ServiceUnavailable extends ServiceError {
  override name = "ServiceUnavailable";
}
