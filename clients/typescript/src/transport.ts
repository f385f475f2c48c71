import { InvalidInput, type Problem, ServiceError, ServiceUnavailable } from "./errors.js";

/** Statuses after which a request is retried: an overloaded or unavailable service or proxy. */
const RETRIED = [429, 502, 503, 504];
/** Milliseconds before the first retry, doubled before each further one, and the longest wait. */
const FIRST_WAIT = 100;
const MAX_WAIT = 10_000;
export const JSON_TYPE = "application/json";

/** Sends requests and retries them; this is safe because every request is idempotent. */
export class Transport {
  readonly #headers: Record<string, string> = { "content-type": JSON_TYPE };

  constructor(
    readonly base: string,
    readonly timeout: number,
    readonly retries: number,
    key?: string,
  ) {
    if (key !== undefined) this.#headers["authorization"] = `Bearer ${key}`;
  }

  /** Send a request and return the body of the response; retries may send another body. */
  async call<T>(method: string, path: string, body?: object, again = body): Promise<T> {
    const url = `${this.base}/${path}`;
    for (let attempt = 0; ; attempt++) {
      let wait = Math.random() * Math.min(MAX_WAIT, FIRST_WAIT * 2 ** attempt);
      let failure: ServiceUnavailable;
      const content = encode(attempt === 0 ? body : again);
      try {
        const [response, text] = await this.#send(method, url, content);
        if (response.ok) return read<T>(url, text);
        const problem = problemOf(response, text);
        if (problem.status === 422) throw new InvalidInput(problem.detail);
        const detail = problem.detail ? `: ${problem.detail}` : "";
        const message = `${url}: ${problem.status} ${problem.title}${detail}`;
        if (!RETRIED.includes(response.status)) throw new ServiceError(message, problem);
        failure = new ServiceUnavailable(message, problem);
        wait = Math.max(wait, milliseconds(response.headers.get("retry-after")));
      } catch (error) {
        if (error instanceof InvalidInput || error instanceof ServiceError) throw error;
        const message = `${url} cannot be reached: ${error}`;
        failure = new ServiceUnavailable(message, undefined, { cause: error });
      }
      if (attempt >= this.retries || wait > MAX_WAIT) throw failure;
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }

  async #send(method: string, url: string, body?: string): Promise<[Response, string]> {
    const signal = AbortSignal.timeout(this.timeout);
    const response = await fetch(url, { method, headers: this.#headers, body, signal });
    return [response, await response.text()];
  }
}

/** Write a body as JSON, which has no NaN and no infinity. */
export function encode(body?: object): string | undefined {
  return JSON.stringify(body, (field, value) => {
    if (typeof value !== "number" || Number.isFinite(value)) return value;
    throw new InvalidInput(`${field} is ${value}: a finite number was expected`);
  });
}

/** Percent-encode a path segment. */
export function quoted(text: string): string {
  if (/^\.{0,2}$/.test(text)) throw new InvalidInput(`"${text}" cannot be sent in a URL`);
  const escape = (sign: string) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`;
  return encodeURIComponent(text).replace(/[!'()*]/g, escape);
}

function read<T>(url: string, text: string): T {
  try {
    return JSON.parse(text);
  } catch (error) {
    const message = `${url}: unexpected response: check the URL and the service's release`;
    throw new ServiceError(message, undefined, { cause: error });
  }
}

/** Return the problem that a response describes; a proxy's response may have only a status. */
function problemOf(response: Response, text: string): Problem {
  try {
    const problem = JSON.parse(text);
    if (typeof problem.status === "number") return problem;
  } catch {
    // not from the service
  }
  return { title: response.statusText, status: response.status };
}

/** Return the value of a `Retry-After` header, which is seconds or a date, in milliseconds. */
function milliseconds(after: string | null): number {
  if (after === null) return 0;
  const value = /^\s*\d+\s*$/.test(after) ? 1000 * Number(after) : Date.parse(after) - Date.now();
  return Math.max(0, value) || 0;
}
