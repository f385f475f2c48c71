/** Decision ids, as the service generates them: a UUIDv7 with a slot, in 32 hex digits. */

const NODE_CRYPTO = "node:crypto"; // a variable, so that bundlers for browsers leave the import alone

/** Return a new id in a slot from 0 to 4095, or in a random one. */
export async function newId(slot?: number | null): Promise<string> {
  // Node.js 18 has no global `crypto`.
  const crypto: Crypto = globalThis.crypto ?? (await import(NODE_CRYPTO)).webcrypto;
  const bytes = crypto.getRandomValues(new Uint8Array(10));
  const [high, low, variant] = bytes as unknown as [number, number, number];
  slot ??= ((high & 0x0f) << 8) | low;
  bytes.set([0x70 | (slot >> 8), slot & 0xff, 0x80 | (variant & 0x3f)]);
  const tail = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0"));
  return Date.now().toString(16).padStart(12, "0") + tail.join("");
}

/**
 * Return the slot of a subject.
 *
 * The ids of its decisions must be in this slot, because a journal with several partitions stores
 * all events of a subject in one of them. Bytes 6 and 7 of a BLAKE2b hash contain the slot.
 */
export function slotOfSubject(subject: string): number {
  const hash = firstWord(new TextEncoder().encode(`\0${subject}`));
  return (Number((hash >> 48n) & 0xfn) << 8) | Number(hash >> 56n);
}

const IV = [
  0x6a09e667f3bcc908n, 0xbb67ae8584caa73bn, 0x3c6ef372fe94f82bn, 0xa54ff53a5f1d36f1n,
  0x510e527fade682d1n, 0x9b05688c2b3e6c1fn, 0x1f83d9abfb41bd6bn, 0x5be0cd19137e2179n,
];
/** The order of the words of a block in each round, as hex digits. */
const ORDER = [
  "0123456789abcdef", "ea489fd61c02b753", "b8c052fdae367194", "7931dcbe265a40f8",
  "905724afe1bc683d", "2c6a0b834d75fe19", "c51fed4a0763928b", "db7ec13950f4862a",
  "6fe9b308c2d714a5", "a2847615fb9e3cd0", "0123456789abcdef", "ea489fd61c02b753",
].map((digits) => Array.from(digits, (digit) => parseInt(digit, 16)));
/** Columns and diagonals of the state, in the order in which they are mixed. */
const LANES = [
  [0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15],
  [0, 5, 10, 15], [1, 6, 11, 12], [2, 7, 8, 13], [3, 4, 9, 14],
] as [number, number, number, number][];

/** Return the first 8 bytes, little-endian, of the BLAKE2b hash with 16 bytes (RFC 7693). */
function firstWord(input: Uint8Array): bigint {
  const hash = [...IV];
  hash[0]! ^= 0x01010010n;
  for (let start = 0; start === 0 || start < input.length; start += 128) {
    const end = Math.min(start + 128, input.length);
    const block = new Uint8Array(128);
    block.set(input.subarray(start, end));
    const view = new DataView(block.buffer);
    const word = (n: number) => view.getBigUint64(8 * n, true);
    const state = [...hash, ...IV];
    state[12]! ^= BigInt(end);
    if (end === input.length) state[14] = BigInt.asUintN(64, ~state[14]!);
    for (const order of ORDER) {
      LANES.forEach((lane, n) => mix(state, lane, word(order[2 * n]!), word(order[2 * n + 1]!)));
    }
    hash.forEach((value, n) => (hash[n] = value ^ state[n]! ^ state[n + 8]!));
  }
  return hash[0]!;
}

function mix(
  state: bigint[], [a, b, c, d]: [number, number, number, number], x: bigint, y: bigint,
): void {
  const turn = (value: bigint, bits: bigint) =>
    BigInt.asUintN(64, (value >> bits) | (value << (64n - bits)));
  const sum = (...values: bigint[]) => BigInt.asUintN(64, values.reduce((p, q) => p + q));
  for (const [value, first, second] of [[x, 32n, 24n], [y, 16n, 63n]] as const) {
    state[a] = sum(state[a]!, state[b]!, value);
    state[d] = turn(state[d]! ^ state[a]!, first);
    state[c] = sum(state[c]!, state[d]!);
    state[b] = turn(state[b]! ^ state[c]!, second);
  }
}
