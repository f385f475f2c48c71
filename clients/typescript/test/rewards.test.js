import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { Client } from "../dist/index.js";

const accepted = () => new Response('{"accepted": 1}', { status: 202 });
let sent, warnings;

/** Answer requests with a function of the path and the body. */
function answer(respond) {
  globalThis.fetch = async (url, { body }) => {
    const path = new URL(url).pathname.replace("/v1/offers/", "");
    sent.push([path, JSON.parse(body)]);
    return respond(path, JSON.parse(body));
  };
}

beforeEach(() => {
  [sent, warnings] = [[], []];
  console.warn = (text) => warnings.push(text);
});

test("rewards that are reported while a request is in flight are one batch", async () => {
  let release;
  const released = new Promise((resolve) => (release = resolve));
  answer(async () => (await released, accepted()));
  const client = new Client("http://service", { bandit: "offers" });
  const first = client.observe({ id: "a", value: 1 });
  await new Promise(setImmediate);
  const others = ["b", "c"].map((id) => client.observe({ id, value: 0 }));
  const ofSubject = client.observe({ subject: "user", value: 1, event_id: "order" });
  release();
  assert.equal((await first).id, "a");
  assert.deepEqual((await Promise.all(others)).map(({ id }) => id), ["b", "c"]);
  assert.equal((await ofSubject).id, "order");
  const ids = sent.map(([path, { rewards }]) => [path, rewards?.map(({ id }) => id)]);
  const paths = [["decisions/a/reward", undefined], ["rewards/batch", ["b", "c"]], ["rewards", [undefined]]];
  assert.deepEqual(ids, paths);
});

test("a batch has at most 1,000 rewards", async () => {
  answer(accepted);
  const client = new Client("http://service", { bandit: "offers" });
  const rewards = Array.from({ length: 2500 }, (_, n) => client.observe({ id: `d${n}`, value: 1 }));
  await Promise.all(rewards);
  assert.deepEqual(sent.map(([, body]) => body.rewards.length), [1000, 1000, 500]);
});

test("a bad reward does not stop the others of its batch", async () => {
  const problem = { title: "Invalid request", status: 422, detail: "value is 7" };
  const bad = ({ value, rewards }) => value === 7 || rewards?.some((reward) => reward.value === 7);
  answer((path, body) => (bad(body) ? new Response(JSON.stringify(problem), problem) : accepted()));
  const client = new Client("http://service", { bandit: "offers" });
  const [good, refused] = [1, 7].map((value) => client.observe({ id: `d${value}`, value }));
  await assert.rejects(refused, { name: "InvalidInput", message: "value is 7" });
  assert.deepEqual(await good, { id: "d1", status: "accepted" });
});

test("a lost reward is logged if nothing waits for it", async () => {
  answer(() => new Response("", { status: 500 }));
  const client = new Client("http://service", { bandit: "offers" });
  client.observe({ id: "a", value: 1 });
  await client.close();
  assert.match(warnings.join(), /a reward was lost: ServiceError: .* 500/);
});

test("values that JSON cannot hold are refused", async () => {
  answer(accepted);
  const client = new Client("http://service", { bandit: "offers" });
  await assert.rejects(client.observe({ id: "a", value: NaN }), { name: "InvalidInput" });
  await assert.rejects(client.decide({ context: { age: Infinity } }), { name: "InvalidInput" });
  await assert.rejects(client.activate(".."), { name: "InvalidInput" });
  assert.throws(() => new Client("service:8080", { bandit: "offers" }), { name: "InvalidInput" });
  assert.deepEqual(sent, []);
});
