/** Checks a client against clients/conformance.json, in Node.js and in a page. */

const TIME = /^\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)$/;

/** Run one case; returns the differences between expected and actual values. */
export async function differences(Client, { client: options, steps }) {
  const { fetch, setTimeout } = globalThis;
  const found = [];
  const ids = new Set();
  let exchanges = [];
  let waited = null;
  const compare = (expected, actual, where) => found.push(...compared(expected, actual, where, ids));
  globalThis.setTimeout = (callback, milliseconds) => {
    waited = milliseconds / 1000;
    return setTimeout(callback);
  };
  globalThis.fetch = async (address, { method, headers, body }) => {
    const { wait, request, response } = exchanges.shift() ?? {};
    const { pathname, searchParams } = new URL(address);
    if (request === undefined) {
      found.push(`unexpected request: ${method} ${address} ${body}`);
      throw new TypeError("fetch failed");
    }
    const { authorization } = request;
    compare(request, {
      method, path: pathname, body: body && JSON.parse(body), at: searchParams.get("at"),
      authorization: authorization === undefined ? undefined : headers.authorization,
    }, "request");
    const [least, most] = wait ?? [waited, waited];
    if (waited < least || waited > most) found.push(`waited for ${waited} s: ${wait} was expected`);
    waited = null;
    if (response.error === "timeout") throw new DOMException("timed out", "TimeoutError");
    if (response.error) throw new TypeError("fetch failed");
    const content = typeof response.body === "string" ? response.body : JSON.stringify(response.body);
    return new Response(content, response);
  };
  try {
    const client = new Client("http://service", options);
    for (const step of steps) {
      exchanges = [...step.exchanges];
      try {
        const result = await call(client, step.method, step.arguments);
        if (step.error) found.push(`${step.method} raised no ${step.error}`);
        const fields = step.result && !Array.isArray(step.result)
          ? Object.fromEntries(Object.keys(step.result).map((name) => [name, result[name]]))
          : result;
        compare(step.result, fields, step.method);
      } catch (error) {
        if (error.name !== step.error) found.push(`${step.method}: ${error.stack}`);
      }
      compare([], exchanges, "requests that were not sent");
    }
  } finally {
    Object.assign(globalThis, { fetch, setTimeout });
  }
  return found;
}

function call(client, method, values) {
  if (method === "observe_many") return Promise.all(values.rewards.map((reward) => client.observe(reward)));
  if (method === "activate" || method === "void") return client[method](values.id, values.at);
  return client[method](values);
}

function compared(expected, actual, where, ids) {
  if (expected === null || expected === undefined) {
    return actual === null || actual === undefined ? [] : [`${where} is ${JSON.stringify(actual)}`];
  }
  if (typeof expected === "object") {
    const names = new Set([...Object.keys(expected), ...Object.keys(actual ?? {})]);
    return [...names].flatMap((name) => compared(expected[name], actual?.[name], `${where}.${name}`, ids));
  }
  return matches(expected, actual, ids)
    ? []
    : [`${where} is ${JSON.stringify(actual)}: ${JSON.stringify(expected)} was expected`];
}

function matches(expected, actual, ids) {
  const [, slot] = /^<id(?: in slot (\d+))?>$/.exec(expected) ?? [];
  if (/^<id/.test(expected)) {
    ids.add(actual);
    const generated = /^[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}$/.test(actual);
    const recent = Math.abs(Date.now() - parseInt(actual.slice(0, 12), 16)) < 60_000;
    const inSlot = slot === undefined || parseInt(actual.slice(13, 16), 16) === Number(slot);
    return generated && recent && inSlot && ids.size === 1;
  }
  if (expected === "<now>") return Math.abs(Date.parse(actual) - Date.now()) < 60_000;
  if (TIME.test(expected)) return Date.parse(actual) === Date.parse(expected);
  return actual === expected;
}
