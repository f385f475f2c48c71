import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { Client } from "../dist/index.js";
import { differences } from "./conformance.js";

const file = new URL("../../conformance.json", import.meta.url);
const { cases } = JSON.parse(await readFile(file, "utf8"));

for (const exchange of cases) {
  test(exchange.name, async () => {
    assert.deepEqual(await differences(Client, exchange), []);
  });
}
