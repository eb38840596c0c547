/**
 * Reports from the browser: a value is randomized here, and only the report leaves.
 *
 *     import { report } from "/static/dither.js";
 *
 *     const definition = await (await fetch("/v1/metrics/late")).json();
 *     await report("/v1/reports", definition, 1, 0.5);
 *
 * The mechanisms are `randomized_response`, `rappor`, `hadamard_response`, `dyadic_hadamard`,
 * `projective_sketch` and `prefix_tree`.
 * Randomness is the browser's cryptographic generator, compared with integer thresholds that are
 * computed here, in exact arithmetic, from epsilon and the number of symbols alone: a server's
 * definition names levels, categories and bins, and cannot make a report less private than the
 * level that it says. The arithmetic, and the order in which random words are used, are those of
 * the Python package `estimators`. What a definition allows to be asked is found out in
 * `definition.js`, and what is not reported in `deny.js`; this module needs all files of its folder
 * beside it.
 *
 * @module dither
 */

import { checkLevels, checkRevision, checkSearch, coarsen, couldAsk } from "./definition.js";
import { withoutDenied } from "./deny.js";
import { prefixTree } from "./prefix_tree.js";
import { projectiveSketch } from "./projective_sketch.js";
import {
  bernoulli, bitLength, blockCount, ceilDiv, isOdd, keepThreshold, littleEndian, missThreshold,
  roundUp, symbolWidth, systemBits, uniformBelow,
} from "./sampling.js";

export { canonicalForm, fingerprintOf, revisionOf } from "./definition.js";
export { denyRule } from "./deny.js";
export { blockCount, missThreshold, systemBits } from "./sampling.js";

/**
 * What `GET /v1/metrics/NAME` answers; other keys are not looked at.
 *
 * @typedef {object} Definition
 * @property {string} name
 * @property {string} mechanism
 * @property {number[]} levels The epsilons on offer, ascending.
 * @property {number} revision
 * @property {string} [kind]
 * @property {[number, number]} [range] Of a mean, distribution, minimum or maximum.
 * @property {number} [bins] Of a distribution, with `range`.
 * @property {string} [scale] Of a distribution: "log", or left out.
 * @property {number[]} [edges] Of a distribution, instead of `range`.
 * @property {{block_bits: number[], hash_bits: number[], depths: number[][]}} [constants] Of
 *   `dyadic_hadamard`, by level: how many bits of a node travel as they are, how many as parities, and
 *   the probability of each depth, times 2^16.
 * @property {number} [rounds] Of a minimum or maximum: see `answer`.
 * @property {string} [split]
 * @property {number} [beta]
 * @property {string} [critical]
 * @property {string[] | number | string} [categories] Of a frequency: names, or their number.
 * @property {import("./string_code.js").Code} [code] Of `prefix_tree`: how strings become bits.
 * @property {import("./deny.js").Rule} [deny] Of open categories: in place of which strings "other"
 *   is reported.
 * @property {object} [options]
 * @property {string} [trust]
 * @property {boolean} [memoized]
 * @property {number} [pane_seconds]
 * @property {string[]} [by] The attributes of devices by which reports are also summed.
 * @property {Record<string, string[]>} [attributes] Their declared values.
 */

/**
 * What `GET /v1/metrics/NAME/round` answers.
 *
 * @typedef {object} Round
 * @property {string} metric
 * @property {number} revision
 * @property {number} number From 1 on.
 * @property {number} rounds
 * @property {number | null} threshold Null once all rounds are decided.
 */

/** @typedef {import("./sampling.js").Bits} Bits */

/**
 * @typedef {object} Randomized
 * @property {number} level Index into the definition's levels.
 * @property {Uint8Array} report The bytes of the report, as they travel.
 * @property {boolean} [denied] Whether "other" was reported in place of a denied string. This stays
 *   here: it is not randomized.
 */

const BATCH_ID_BYTES = 16;
const GRAIN = 2 ** 16; // probabilities of depths are multiples of its inverse
const MOST_BINS = 4096;
const MOST_BLOCK_BITS = 7;

// -- The mechanisms -------------------------------------------------------------------------------

/**
 * A mechanism at the levels of one definition.
 *
 * @typedef {object} Mechanism
 * @property {number} width Bytes of a report.
 * @property {(value: unknown, level: number, bits: Bits) => Uint8Array} randomize
 */

/** @param {Definition} definition @param {bigint} [parts] @returns {Mechanism} */
function randomizedResponse(definition, parts = 1n) {
  const thresholds = definition.levels.map((epsilon) => missThreshold(epsilon, 1n, 1n, parts));
  const [low, high] = definition.range ?? [NaN, NaN];
  if (!(low < high)) throw new TypeError(`${definition.name}: a definition without a range`);
  return {
    width: 1,
    randomize(value, level, bits) {
      if (typeof value !== "number" || Number.isNaN(value)) {
        throw new TypeError(`value ${String(value)} of ${definition.name}: expected a number`);
      }
      const clipped = Math.min(Math.max(value, low), high);
      const own = (clipped - low) * (2 / (high - low)) - 1;
      const positive = roundUp(bits, (1 + own) / 2);
      const [flipped] = bernoulli(bits, thresholds[level], 1);
      return Uint8Array.of(positive === flipped ? 0 : 1);
    },
  };
}

/** @param {Definition} definition @returns {Mechanism} */
function rappor(definition) {
  const thresholds = definition.levels.map((epsilon) => missThreshold(epsilon, 1n, 1n, 2n));
  const categories = categoryCount(definition);
  const width = Math.ceil(categories / 8);
  return {
    width,
    randomize(value, level, bits) {
      const own = categoryIndex(definition, value);
      const report = new Uint8Array(width);
      bernoulli(bits, thresholds[level], categories).forEach((flipped, i) => {
        if (flipped !== (i === own)) report[i >> 3] |= 1 << (i & 7);
      });
      return report;
    },
  };
}

/** @param {Definition} definition @returns {Mechanism} */
function hadamardResponse(definition) {
  const categories = categoryCount(definition);
  const levels = definition.levels.map((epsilon) => {
    const blocks = blockCount(epsilon, categories);
    const size = 1n << BigInt(bitLength(ceilDiv(BigInt(categories), blocks)));
    const symbols = blocks * size;
    const half = size / 2n;
    return { blocks, size, symbols, half, threshold: missThreshold(epsilon, half, symbols - half) };
  });
  const symbols = levels.map((each) => each.symbols);
  const width = symbolWidth(symbols.reduce((most, each) => (each > most ? each : most)));
  return {
    width,
    randomize(value, level, bits) {
      const own = BigInt(categoryIndex(definition, value));
      const { blocks, size, symbols, half, threshold } = levels[level];
      const block = own % blocks;
      const row = own / blocks + 1n;
      const [missed] = bernoulli(bits, threshold, 1);
      const drawn = uniformBelow(bits, missed ? symbols - half : half);
      if (missed && drawn >= half) {
        const far = drawn - half;
        return littleEndian(far >= block * size ? far + size : far, width);
      }
      // half the columns of the block: a bit put in at the row's lowest one settles the sign
      const lowest = row & -row;
      let column = ((drawn & ~(lowest - 1n)) << 1n) | (drawn & (lowest - 1n));
      if (isOdd(row & column) !== missed) column ^= lowest;
      return littleEndian(block * size + column, width);
    },
  };
}

/** @param {Definition} definition @returns {Mechanism} */
function dyadicHadamard(definition) {
  const edges = binEdges(definition);
  const height = bitLength(BigInt(edges.length - 2));
  const levels = definition.levels.map((epsilon, level) => {
    const constants = treeConstants(definition, level, height);
    const symbols = 1n << BigInt(constants.blockBits + constants.hashBits);
    return { ...constants, symbols, threshold: keepThreshold(epsilon, symbols) };
  });
  return {
    width: 5,
    randomize(value, level, bits) {
      if (typeof value !== "number" || Number.isNaN(value)) {
        throw new TypeError(`value ${String(value)} of ${definition.name}: expected a number`);
      }
      const bin = BigInt(edges.slice(1, -1).filter((edge) => edge <= value).length);
      const { blockBits, hashBits, depths, symbols, threshold } = levels[level];
      let drawn = Number(uniformBelow(bits, BigInt(GRAIN)));
      const depth = depths.findIndex((chance) => (drawn -= chance) < 0);
      const free = BigInt(depth - blockBits);
      const rows = (1n << free) - 1n;
      const first = 1n + uniformBelow(bits, rows);
      let second = 0n;
      if (hashBits === 2) {
        second = 1n + uniformBelow(bits, rows - 1n);
        if (second >= first) second += 1n;
      }
      const node = bin >> BigInt(height - depth);
      const own = node & rows;
      const parities = (isOdd(first & own) ? 1n : 0n) | (isOdd(second & own) ? 2n : 0n);
      const [kept] = bernoulli(bits, threshold, 1);
      const other = uniformBelow(bits, symbols);
      const symbol = kept ? ((node >> free) << BigInt(hashBits)) | parities : other;
      return littleEndian(BigInt(depth) | (first << 4n) | (second << 16n) | (symbol << 28n), 5);
    },
  };
}

/**
 * The edges of a distribution's bins.
 *
 * @param {Definition} definition
 * @returns {number[]}
 */
function binEdges({ name, range, bins, scale, edges }) {
  let found = Array.isArray(edges) ? edges : [];
  const isKnown = scale === undefined || scale === "linear" || scale === "log";
  if (edges === undefined && isKnown && Array.isArray(range) && range.length === 2) {
    const [[low, high], count] = [range, Math.min(bins ?? 0, MOST_BINS + 1)];
    const between = (/** @type {number} */ share) =>
      scale === "log" ? low * (high / low) ** share : low + (high - low) * share;
    found = Array.from({ length: count + 1 }, (_, i) => between(i / count));
  }
  const isAscending = found.every(
    (edge, i) => Number.isFinite(edge) && (i === 0 || edge > found[i - 1]),
  );
  if (found.length < 3 || found.length > MOST_BINS + 1 || !isAscending) {
    throw new TypeError(`${name}: a definition without 2 to ${MOST_BINS} bins`);
  }
  return found;
}

/**
 * How reports of a level are drawn, as the definition says; whatever it says, epsilon holds.
 *
 * @param {Definition} definition
 * @param {number} level
 * @param {number} height The tree has 2^height bins.
 */
function treeConstants({ name, constants }, level, height) {
  const [blockBits, hashBits] = [constants?.block_bits?.[level], constants?.hash_bits?.[level]];
  const depths = constants?.depths?.[level];
  const least = Number(blockBits) + Number(hashBits);
  const isChance = (/** @type {number} */ chance, /** @type {number} */ depth) =>
    Number.isInteger(chance) && chance >= 0 && (depth >= least || chance === 0);
  if (
    !Number.isInteger(blockBits) ||
    !(Number(blockBits) >= 0 && Number(blockBits) <= MOST_BLOCK_BITS) ||
    (hashBits !== 1 && hashBits !== 2) ||
    !Array.isArray(depths) ||
    depths.length !== height + 1 ||
    !depths.every(isChance) ||
    depths.reduce((sum, chance) => sum + chance, 0) !== GRAIN
  ) {
    throw new TypeError(`${name}: a definition whose constants fit no reports of level ${level}`);
  }
  return { blockBits: Number(blockBits), hashBits, depths };
}

/** @param {Definition} definition @returns {number} */
function categoryCount({ name, categories }) {
  const count = Array.isArray(categories) ? categories.length : categories;
  if (typeof count !== "number" || !(count >= 2)) {
    throw new TypeError(`${name}: a definition without two or more categories`);
  }
  return count;
}

/** A category by its name or its index. @param {Definition} definition @param {unknown} value */
function categoryIndex(definition, value) {
  const { name, categories } = definition;
  const count = categoryCount(definition);
  if (typeof value === "string" && Array.isArray(categories)) {
    const index = categories.indexOf(value);
    if (index >= 0) return index;
  } else if (Number.isInteger(value) && Number(value) >= 0 && Number(value) < count) {
    return Number(value);
  }
  const shown = Array.isArray(categories) ? categories.slice(0, 10).join(", ") : "";
  throw new RangeError(
    `category ${String(value)} of ${name}: expected an index from 0 to ${count - 1}` +
      (shown && `, or a name (${shown}${count > 10 ? ", ..." : ""})`),
  );
}

/** Answers to rounds: of -1 for "no" and 1 for "yes". @param {Definition} definition @param {number} rounds */
function roundAnswers(definition, rounds) {
  const parts = definition.split === "budget" ? BigInt(rounds) : 1n;
  return randomizedResponse({ ...definition, range: [-1, 1] }, parts);
}

/** @type {Record<string, (definition: Definition) => Mechanism>} */
const MECHANISMS = {
  randomized_response: randomizedResponse,
  rappor,
  hadamard_response: hadamardResponse,
  dyadic_hadamard: dyadicHadamard,
  prefix_tree: prefixTree,
  projective_sketch: projectiveSketch,
};

/** @type {WeakMap<Definition, Mechanism>} Thresholds are computed once a definition. */
const built = new WeakMap();

/** @type {WeakSet<Definition>} Those that call themselves by their own revision. */
const checked = new WeakSet();

/** @param {Definition} definition @returns {Mechanism} */
function mechanismOf(definition) {
  let mechanism = built.get(definition);
  if (mechanism === undefined) {
    if (definition.trust !== undefined && definition.trust !== "local") {
      throw new TypeError(
        `${definition.name} is collected in trust: expected a metric that is randomized here; this ` +
          "module never sends true values",
      );
    }
    checkLevels(definition);
    if (!Object.hasOwn(MECHANISMS, definition.mechanism)) {
      throw new TypeError(
        `mechanism ${definition.mechanism} of ${definition.name}: this module has ` +
          Object.keys(MECHANISMS).join(", "),
      );
    }
    mechanism =
      definition.rounds === undefined
        ? MECHANISMS[definition.mechanism](definition)
        : roundAnswers(definition, definition.rounds);
    built.set(definition, mechanism);
  }
  return mechanism;
}

// -- The interface --------------------------------------------------------------------------------

/**
 * Returns the index of the largest level that is at most the epsilon that is demanded.
 *
 * @param {Definition} definition
 * @param {number} epsilon
 * @returns {number}
 * @throws {RangeError} If it is below the lowest level: such an owner does not report.
 */
export function levelOf(definition, epsilon) {
  const isNumber = typeof epsilon === "number";
  const level = definition.levels.findLastIndex((offered) => isNumber && offered <= epsilon);
  if (level < 0) {
    throw new RangeError(
      `epsilon = ${epsilon}: metric ${definition.name} offers ${definition.levels.join(", ")}; ` +
        "a stricter demand cannot be met, do not report",
    );
  }
  return level;
}

/**
 * Randomizes a value. Each call spends its epsilon.
 *
 * @param {Definition} definition
 * @param {number | string} value A number for a mean (clipped to the range); a category's name or
 *   index for a frequency; a string for open categories.
 * @param {number} epsilon The privacy that its owner demands, rounded down to a level.
 * @param {Bits} [bits] The browser's cryptographic generator; another one for tests only.
 * @param {import("./deny.js").Deny} [deny] For strings, the page's own rule, beside that of the
 *   definition: for which of them "other" is reported.
 * @returns {Randomized}
 * @throws {TypeError | RangeError} If the mechanism, the value or the epsilon cannot be used.
 */
export function randomize(definition, value, epsilon, bits = systemBits, deny = undefined) {
  if (definition.rounds !== undefined) {
    throw new TypeError(`${definition.name} is asked in rounds: use answer`);
  }
  const level = levelOf(definition, epsilon);
  const reported = withoutDenied(definition, value, deny);
  const bytes = mechanismOf(definition).randomize(reported.value, level, bits);
  return { level, report: bytes, denied: reported.denied };
}

/**
 * Says at random whether a value is at or beyond the threshold of a round. Each call spends the
 * level's epsilon, or its share of a round where the budget is split.
 *
 * @param {Definition} definition Of a minimum or maximum.
 * @param {Round} round
 * @param {number} value Clipped to the range.
 * @param {number} epsilon The privacy that its owner demands, rounded down to a level.
 * @param {Bits} [bits] The browser's cryptographic generator; another one for tests only.
 * @returns {Randomized}
 * @throws {TypeError | RangeError} If the round, the value or the epsilon cannot be used.
 */
export function randomizeAnswer(definition, round, value, epsilon, bits = systemBits) {
  const { name, kind, range } = definition;
  const threshold = checkRound(definition, round);
  if (range === undefined) throw new TypeError(`${name}: a definition without a range`);
  if (typeof value !== "number" || Number.isNaN(value)) {
    throw new TypeError(`value ${String(value)} of ${name}: expected a number`);
  }
  const inside = Math.min(Math.max(value, range[0]), range[1]);
  const isBeyond = kind === "minimum" ? inside <= threshold : inside >= threshold;
  const level = levelOf(definition, epsilon);
  const report = mechanismOf(definition).randomize(isBeyond ? 1 : -1, level, bits);
  return { level, report };
}

/**
 * Returns what a round asks about, if the definition allows it: who told of it is not believed.
 *
 * @param {Definition} definition
 * @param {Round} round
 * @returns {number}
 * @throws {TypeError | RangeError}
 */
function checkRound(definition, round) {
  const { name, revision, rounds } = definition;
  checkSearch(definition);
  const { metric, number, threshold } = round;
  const isOfMetric = metric === name && round.revision === revision && round.rounds === rounds;
  if (!isOfMetric || threshold === null) {
    throw new TypeError(`round ${number} of ${metric}: expected an open one of ${name}`);
  }
  if (!couldAsk(definition, number, threshold)) {
    throw new RangeError(
      `round ${number} of ${name}, threshold ${threshold}: expected 1 to ${rounds}, and the middle ` +
        "of an interval that the search can have come to",
    );
  }
  return threshold;
}

/**
 * What a browser keeps of a search, under the name of its metric.
 *
 * @typedef {object} Turn
 * @property {string} fingerprint Of the definition that it was first asked by.
 * @property {number} own The round that it drew for itself; 0 for all of them.
 * @property {number} answered The last one that it has answered.
 */

/**
 * Returns whether this browser answers a round now, and notes that it has: a round is answered at
 * most once, also after a restart; where the users are split, only the one that it drew for itself.
 * A search is that of its name: another definition is no new turn.
 *
 * @param {Definition} definition
 * @param {Round} round
 * @param {Pick<Storage, "getItem" | "setItem">} [storage] Of this person's browser.
 * @returns {boolean}
 * @throws {TypeError | RangeError} If the definition does not allow the round, or is another one than
 *   before.
 */
export function takeTurn(definition, round, storage = localStorage) {
  checkRound(definition, round);
  const fingerprint = checkSearch(definition);
  const key = `dither:${definition.name}`;
  const rounds = BigInt(definition.rounds ?? 1);
  const own = definition.split === "budget" ? 0 : 1 + Number(uniformBelow(systemBits, rounds));
  const known = storage.getItem(key);
  /** @type {Turn} */
  const turn = known === null ? { fingerprint, own, answered: 0 } : JSON.parse(known);
  if (turn.fingerprint !== fingerprint) {
    throw new TypeError(
      `${definition.name}: another definition than the one that this browser has answered; a new ` +
        "question needs another name",
    );
  }
  const isOwn = turn.own === 0 || turn.own === round.number;
  const takes = isOwn && round.number > turn.answered;
  if (takes) turn.answered = round.number;
  storage.setItem(key, JSON.stringify(turn));
  return takes;
}

/**
 * Answers a round, if it is this browser's turn, and posts the answer. Two pages of one browser take
 * turns one after the other (`navigator.locks`: not where a page came over plain HTTP).
 *
 * @param {string | URL} url Of the gateway: `/v1/reports`.
 * @param {Definition} definition
 * @param {Round} round
 * @param {number} value One that does not change between rounds.
 * @param {number} epsilon
 * @param {PostOptions} [options]
 * @returns {Promise<boolean>} Whether it has answered.
 * @throws {TypeError | RangeError} As `randomizeAnswer` and `takeTurn`; nothing was answered.
 * @throws {DeliveryError}
 */
export async function answer(url, definition, round, value, epsilon, options = {}) {
  const { level, report } = randomizeAnswer(definition, round, value, epsilon);
  const turn = () => takeTurn(definition, round); // what cannot be answered takes none
  const locks = globalThis.navigator?.locks;
  const takes = locks ? await locks.request(`dither:${definition.name}`, turn) : turn();
  if (!takes) return false;
  const batch = { round: round.number };
  await post(url, encodeBatch(definition, [level], [report], batch), options);
  return true;
}

/**
 * Returns 16 random bytes: they name a batch, and say nothing about who sent it.
 *
 * @returns {Uint8Array}
 */
export function newBatchId() {
  return crypto.getRandomValues(new Uint8Array(BATCH_ID_BYTES));
}

/**
 * Encodes reports as one serialized `ReportBatch` (producers/wire/reports.proto).
 *
 * @param {Definition} definition
 * @param {number[]} levels
 * @param {Uint8Array[]} reports
 * @param {{time?: number | Date, batchId?: Uint8Array, round?: number,
 *   attributes?: Record<string, string>}} [options] When it happened, in milliseconds since the epoch,
 *   now by default (0: when Kafka receives it); 16 bytes under which the batch is counted once; the
 *   round that is answered; the attributes of the reports' device, of which only those leave that the
 *   metric uses, and a value that it does not declare as "other".
 * @returns {Uint8Array}
 * @throws {TypeError | RangeError} If the definition is not whole, or has another revision than its
 *   own; if something else cannot be encoded.
 */
export function encodeBatch(definition, levels, reports, options = {}) {
  const { time = Date.now(), batchId = newBatchId(), round = 0, attributes = {} } = options;
  const { width } = mechanismOf(definition);
  if (!checked.has(definition)) checkRevision(definition);
  checked.add(definition);
  if (levels.length !== reports.length || reports.some((report) => report.length !== width)) {
    throw new RangeError(
      `${levels.length} levels and ${reports.length} reports of ${definition.name}: ` +
        `expected as many of both, and ${width} bytes a report`,
    );
  }
  if (batchId.length !== BATCH_ID_BYTES) {
    throw new RangeError(`batchId of ${batchId.length} bytes: expected ${BATCH_ID_BYTES}`);
  }
  const milliseconds = Number(time);
  if (!Number.isSafeInteger(milliseconds) || milliseconds < 0) {
    throw new RangeError(`time = ${String(time)}: expected milliseconds since the epoch`);
  }
  const sent = coarsen(definition, attributes);
  const values = new Uint8Array(width * reports.length);
  reports.forEach((report, i) => values.set(report, width * i));
  return Uint8Array.from([
    ...textField(1, definition.name),
    ...numberField(2, definition.revision),
    ...bytesField(3, batchId),
    ...numberField(4, milliseconds),
    ...bytesField(5, Uint8Array.from(levels)),
    ...bytesField(6, values),
    ...numberField(7, round),
    ...sent.flatMap(([name, value]) =>
      bytesField(8, Uint8Array.from([...textField(1, name), ...textField(2, value)])),
    ),
  ]);
}

/** @param {number} number At least 0. @returns {number[]} */
function varint(number) {
  const bytes = [];
  let rest = number;
  for (; rest >= 128; rest = Math.floor(rest / 128)) bytes.push((rest % 128) | 128);
  return [...bytes, rest];
}

/** @param {number} field @param {number} number */
function numberField(field, number) {
  return number === 0 ? [] : [field << 3, ...varint(number)];
}

/** @param {number} field @param {string} text */
function textField(field, text) {
  return bytesField(field, new TextEncoder().encode(text));
}

/** @param {number} field @param {Uint8Array} bytes */
function bytesField(field, bytes) {
  return bytes.length === 0 ? [] : [(field << 3) | 2, ...varint(bytes.length), ...bytes];
}

// -- Posting --------------------------------------------------------------------------------------

const RETRY_STATUS = [408, 429, 502, 503, 504];
const FIRST_WAIT_MS = 1000;
const LAST_WAIT_MS = 60_000;
const PATIENCE_MS = 300_000; // a server that asks for more is not waited for

/** A report says nothing about who sent it: no cookies, no page, nothing that is kept. */
const ANONYMOUS = Object.freeze(
  /** @type {RequestInit} */ ({
    credentials: "omit",
    referrerPolicy: "no-referrer",
    cache: "no-store",
  }),
);

/**
 * A batch of which it is not known that Kafka has it.
 *
 * `body` is the batch: `post(url, error.body)` sends the same one again, also after a restart of
 * the page, and it is counted once. Do not call `report` again: it would randomize anew, and spend
 * the epsilon once more.
 */
export class DeliveryError extends Error {
  /**
   * @param {string} message
   * @param {Uint8Array} body
   * @param {number} status The last HTTP status; 0 if there was no answer.
   */
  constructor(message, body, status) {
    super(message);
    this.name = "DeliveryError";
    this.body = body;
    this.status = status;
  }
}

/**
 * @typedef {object} PostOptions
 * @property {string} [token] With the scope `report`, where the server wants one.
 * @property {number} [attempts] How often the batch is posted at most; 5 by default.
 * @property {AbortSignal} [signal]
 */

/**
 * Posts an encoded batch until Kafka has it, and waits between attempts as the server asks.
 *
 * @param {string | URL} url Of the gateway: `/v1/reports`.
 * @param {Uint8Array} body From `encodeBatch`.
 * @param {PostOptions} [options]
 * @returns {Promise<{batch_id: string, reports: number}>}
 * @throws {DeliveryError}
 */
export async function post(url, body, { token, attempts = 5, signal } = {}) {
  /** @type {Record<string, string>} */
  const headers = { "Content-Type": "application/x-protobuf" };
  if (token) headers.Authorization = `Bearer ${token}`;
  let told = "no attempt";
  let status = 0;
  for (let attempt = 1; attempt <= attempts; attempt += 1) {
    /** @type {string | null} */
    let after = null;
    try {
      const answer = await fetch(url, { ...ANONYMOUS, method: "POST", headers, body, signal });
      status = answer.status;
      if (answer.ok) return await answer.json();
      after = answer.headers.get("Retry-After");
      told = await explanation(answer);
      if (!RETRY_STATUS.includes(status)) break;
    } catch (error) {
      if (signal?.aborted) throw new DeliveryError("aborted", body, status);
      told = String(error);
      status = 0;
    }
    const pause = waitMs(attempt, after);
    if (attempt === attempts || pause > PATIENCE_MS) break;
    await wait(pause, signal);
  }
  throw new DeliveryError(`the batch was not acknowledged: ${told}`, body, status);
}

/** What a problem says. @param {Response} answer */
async function explanation(answer) {
  const problem = await answer.json().catch(() => ({}));
  return [`${answer.status}`, problem.detail, problem.remedy].filter(Boolean).join(": ");
}

/**
 * Doubling from a second to a minute, or what the server asks for; up to a quarter more at random,
 * so that devices which failed together do not come back together.
 *
 * @param {number} attempt
 * @param {string | null} after The header Retry-After: seconds, or a date.
 */
function waitMs(attempt, after) {
  const doubled = Math.min(FIRST_WAIT_MS * 2 ** (attempt - 1), LAST_WAIT_MS);
  const seconds = after === null ? NaN : Number(after);
  const asked = Number.isNaN(seconds) ? Date.parse(after ?? "") - Date.now() : seconds * 1000;
  return (asked >= 0 ? asked : doubled) * (1 + Math.random() / 4);
}

/** @param {number} milliseconds @param {AbortSignal} [signal] @returns {Promise<void>} */
function wait(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(done, milliseconds);
    signal?.addEventListener("abort", done);
    function done() {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    }
  });
}

/**
 * Randomizes values and posts the reports as one batch, until Kafka has it.
 *
 * @param {string | URL} url Of the gateway: `/v1/reports`.
 * @param {Definition} definition From `GET /v1/metrics/NAME`.
 * @param {number | string | (number | string)[]} values
 * @param {number | number[]} epsilons One for all values, or one for each.
 * @param {PostOptions & {time?: number | Date, attributes?: Record<string, string>,
 *   deny?: import("./deny.js").Deny}} [options] When it happened, now by default; public properties
 *   of this device, as for `encodeBatch`; the page's own rule, as for `randomize`.
 * @returns {Promise<{batch_id: string, reports: number, denied?: number}>} The server's answer
 *   and, with a rule, how many values were denied, which the server does not know.
 * @throws {TypeError | RangeError} If a value or an epsilon cannot be used; nothing was reported.
 * @throws {DeliveryError} If it is not known that Kafka has the batch; `post` sends it again.
 */
export async function report(url, definition, values, epsilons, options = {}) {
  const { time, attributes = {}, deny, ...posting } = options;
  const all = Array.isArray(values) ? values : [values];
  if (all.length === 0) throw new RangeError(`no values of ${definition.name}: nothing to report`);
  if (Array.isArray(epsilons) && epsilons.length !== all.length) {
    throw new RangeError(`${epsilons.length} epsilons for ${all.length} values`);
  }
  coarsen(definition, attributes); // what cannot be sent is not randomized
  const randomized = all.map((value, i) =>
    randomize(definition, value, Array.isArray(epsilons) ? epsilons[i] : epsilons, systemBits, deny),
  );
  const body = encodeBatch(
    definition,
    randomized.map(({ level }) => level),
    randomized.map(({ report: bytes }) => bytes),
    { time, attributes },
  );
  const answered = await post(url, body, posting);
  if (deny === undefined && definition.deny === undefined) return answered;
  return { ...answered, denied: randomized.filter(({ denied }) => denied).length };
}
