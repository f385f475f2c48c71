/** Client of the belated decision service. */

import { InvalidInput, ServiceUnavailable } from "./errors.js";
import { newId, slotOfSubject } from "./ids.js";
import type { components } from "./openapi.js";
import { encode, JSON_TYPE, quoted, Transport } from "./transport.js";

export { InvalidInput, type Problem, ServiceError, ServiceUnavailable } from "./errors.js";

type Schemas = components["schemas"];
type DecisionRequest = Schemas["DecisionRequest"];
/** The name of an action, or its index if actions have no names. */
export type Action = Schemas["Decided"]["action"];
/** A decision; `fallback` is true if the service did not make it. */
export type Decision = Omit<Schemas["Decided"], "slot">;
/** A request for a decision, with the action to take if the service is unavailable. */
export type Request = Omit<DecisionRequest, "first_attempt" | "fallback"> & { fallback?: Action };
/** The reward of a decision, by `id`; or of a subject, by `subject` and `event_id`. */
export type Reward = Schemas["NamedReward"] | Schemas["SubjectRewardBody"];
/** The event is durable. */
export type Receipt = Schemas["Accepted"];

export interface Options {
  /** The name of the bandit. */
  bandit: string;
  /** The API key, if the service requires one. Pages cannot keep it secret: use reward tokens. */
  key?: string;
  /** Milliseconds to wait for each response; 5,000 by default. */
  timeout?: number;
  /** How often to retry a request that got no response; 3 by default. */
  retries?: number;
  /** The action to take if the service is unavailable. */
  fallback?: Action;
}

interface Pending {
  reward: Reward;
  accept: (receipt: Receipt) => void;
  reject: (error: unknown) => void;
}

/** The limits of a batch: requests or rewards, and bytes. */
const MAX_BATCH = 1000;
const MAX_BYTES = 1 << 20;
/** How many unreported fallback decisions are remembered; beyond that, the oldest is dropped. */
const MAX_UNREPORTED = 10_000;

/**
 * Decides and reports rewards for one bandit.
 *
 * Every request is safe to retry: ids and times are set before the first attempt. Create one client
 * when the program starts, and `close` it at the end.
 */
export class Client {
  readonly #transport: Transport;
  readonly #fallback: Action | undefined;
  readonly #needsToken: boolean;
  /** The slot for new ids, from the last response: such decisions are committed together. */
  #slot: number | null | undefined;
  /** Fallback decisions that the service has not recorded yet. */
  #unreported: DecisionRequest[] = [];
  /** Rewards that the service has not accepted yet. */
  #rewards: Pending[] = [];
  #sending: Promise<void> | undefined;

  constructor(url: string, options: Options) {
    const { bandit, key, timeout = 5000, retries = 3, fallback } = options;
    if (!/^https?:\/\//i.test(url)) {
      throw new InvalidInput(`url is "${url}": write an address such as "http://localhost:8080"`);
    }
    const base = `${url.replace(/\/+$/, "")}/v1/${quoted(bandit)}`;
    this.#transport = new Transport(base, timeout, retries, key);
    this.#fallback = fallback;
    this.#needsToken = key !== undefined;
    globalThis.document?.addEventListener("visibilitychange", this.#onVisibility);
  }

  /**
   * Choose an action; the decision is durable before the promise resolves.
   *
   * If all attempts fail and there is a fallback action, return a decision for it, which the client
   * reports to the service later.
   */
  async decide(request: Request = {}): Promise<Decision> {
    const { fallback = this.#fallback, ...fields } = request;
    const index = fallback === undefined ? -1 : indexOf(fallback, fields);
    const slot = fields.subject == null ? this.#slot : slotOfSubject(fields.subject);
    const again: DecisionRequest = { ...fields, id: fields.id ?? (await newId(slot)) };
    const first = fields.id == null ? { ...again, first_attempt: true } : again;
    try {
      const response = await this.#transport.call<Schemas["Decided"]>(
        "POST", "decisions", first, again,
      );
      const { slot: next, ...decision } = response;
      this.#slot = next;
      await this.#reportFallbacks();
      return decision;
    } catch (error) {
      if (fallback === undefined || !(error instanceof ServiceUnavailable)) throw error;
      const at = now();
      const { sticky, ...unreported } = again;
      this.#unreported.push({ ...unreported, fallback: { action: fallback, at } });
      if (this.#unreported.length > MAX_UNREPORTED) this.#unreported.shift();
      const [id, mean] = [again.id as string, NaN];
      return { id, action: fallback, index, propensity: 1, mean, model: 0, at, fallback: true };
    }
  }

  /**
   * Report a reward; the promise resolves when it is durable.
   *
   * Rewards that are reported while another request is in flight are sent in one batch. When the
   * page is hidden, those that the service has not accepted yet are sent as beacons. You need not
   * wait for the promise: if the reward is lost, a warning is logged.
   */
  observe(reward: Reward): Promise<Receipt> {
    // A page with only a token must not state a time: the service sets it.
    const at = reward.at ?? ("token" in reward && reward.token != null ? undefined : now());
    const receipt = new Promise<Receipt>((accept, reject) => {
      encode(single(reward)); // an invalid reward is rejected before it is queued
      this.#rewards.push({ reward: { ...reward, at }, accept, reject });
    });
    receipt.catch((error) => console.warn(`a reward was lost: ${error}`));
    this.#sending ??= this.#sendRewards();
    return receipt;
  }

  /** Report that a decision took effect, which starts its reward window. */
  async activate(id: string, at: string = now()): Promise<Receipt> {
    return this.#transport.call("PUT", `decisions/${quoted(id)}/activation?${query(at)}`);
  }

  /** Report that a decision was never carried out: nothing is learned from it. */
  async void(id: string, at: string = now()): Promise<Receipt> {
    return this.#transport.call("POST", `decisions/${quoted(id)}/void?${query(at)}`);
  }

  /**
   * Wait for the rewards in flight, and report the remaining fallback decisions.
   *
   * The promise is rejected if the service is unavailable: these decisions are then not recorded.
   */
  async close(): Promise<void> {
    await this.#sending;
    globalThis.document?.removeEventListener("visibilitychange", this.#onVisibility);
    while (this.#unreported.length > 0) await this.#reportFallbacks(true);
  }

  async #sendRewards(): Promise<void> {
    await null; // rewards that are reported together share a request
    while (this.#rewards.length > 0) {
      const ofSubject = "subject" in this.#rewards[0]!.reward;
      const alike = this.#rewards.filter(({ reward }) => "subject" in reward === ofSubject);
      const batch = alike.slice(0, batchSize(alike.map(({ reward }) => reward)));
      await this.#sendBatch(batch, ofSubject);
      const sent = new Set(batch);
      this.#rewards = this.#rewards.filter((pending) => !sent.has(pending));
    }
    this.#sending = undefined;
  }

  async #sendBatch(batch: Pending[], ofSubject: boolean): Promise<void> {
    const rewards = batch.map(({ reward }) => reward);
    try {
      if (rewards.length > 1) {
        await this.#transport.call("POST", ofSubject ? "rewards" : "rewards/batch", { rewards });
      } else {
        const [path, body] = single(rewards[0]!);
        await this.#transport.call(ofSubject ? "POST" : "PUT", path, body);
      }
    } catch (error) {
      if (batch.length === 1 || error instanceof ServiceUnavailable) {
        batch.forEach(({ reject }) => reject(error));
      } else {
        // One bad reward makes the service reject the whole batch.
        for (const pending of batch) await this.#sendBatch([pending], ofSubject);
      }
      return;
    }
    for (const { reward, accept } of batch) {
      accept({ id: "subject" in reward ? reward.event_id : reward.id, status: "accepted" });
    }
  }

  readonly #onVisibility = (): void => {
    if (document.visibilityState !== "hidden") return;
    for (const { reward } of this.#rewards) {
      // A beacon cannot carry the key.
      if (this.#needsToken && !("token" in reward && reward.token)) continue;
      const [path, body] = single(reward);
      const content = new Blob([encode(body)!], { type: JSON_TYPE });
      if (!navigator.sendBeacon(`${this.#transport.base}/${path}`, content)) return;
    }
  };

  /** Report fallback decisions; those that the service could not receive stay queued. */
  async #reportFallbacks(closing = false): Promise<void> {
    const batch = this.#unreported.splice(0, batchSize(this.#unreported));
    if (batch.length === 0) return;
    try {
      await this.#report(batch);
    } catch (error) {
      this.#unreported.unshift(...batch);
      if (closing) throw error;
    }
  }

  async #report(requests: DecisionRequest[]): Promise<void> {
    try {
      const { decisions } = await this.#transport.call<Schemas["ManyDecided"]>(
        "POST", "decisions/batch", { requests },
      );
      for (const [n, { id, action }] of decisions.entries()) {
        // The service had decided, but its response was lost: the action was not taken.
        if (action !== requests[n]?.fallback?.action) await this.void(id);
      }
    } catch (error) {
      if (error instanceof ServiceUnavailable) throw error;
      if (requests.length === 1) {
        console.warn(`a fallback decision could not be recorded: ${error}`);
      } else {
        // One bad request makes the service reject the whole batch.
        for (const request of requests) await this.#report([request]);
      }
    }
  }
}

/** Return the path and the body that report one reward. */
function single(reward: Reward): [path: string, body: object] {
  if ("subject" in reward) return ["rewards", { rewards: [reward] }];
  const { id, ...body } = reward;
  return [`decisions/${quoted(id)}/reward`, body];
}

/** Return the index of an action in a request; -1 if only the service knows the actions. */
function indexOf(action: Action, { actions, rows }: DecisionRequest): number {
  if (actions != null) {
    const names: unknown[] = Array.isArray(actions) ? actions : Object.keys(actions);
    const index = names.indexOf(action);
    if (index >= 0) return index;
  } else if (rows == null) {
    return -1;
  } else if (typeof action === "number") {
    return action;
  }
  throw new InvalidInput(`fallback must be one of the offered actions, not ${action}`);
}

/** Return how many of the first values fit into a batch; at least one, if there are any. */
function batchSize(values: object[]): number {
  let bytes = 64;
  for (let size = 0; size < values.length; size++) {
    bytes += new TextEncoder().encode(encode(values[size])).length + 1;
    if (size === MAX_BATCH || (size > 0 && bytes > MAX_BYTES)) return size;
  }
  return values.length;
}

function now(): string {
  return new Date().toISOString();
}

function query(at: string): URLSearchParams {
  return new URLSearchParams({ at });
}
