/**
 * Permanent answers: drawn once for each value, stored on the device, and repeated
 * (`producers.ledger.permanent_answers` and `estimators.memoization` in Python).
 *
 * No value decides what is charged, or whether a report appears: a period has room for a fixed
 * number of different answers, and the first reports of a period are charged for it.
 *
 * @module permanent
 */

import { categoryCount, categoryIndex } from "../categories.js";
import { outside, wrong } from "../checks.js";
import { mechanismOf } from "../mechanisms.js";
import { unitOf } from "../means.js";
import { WORD, missThreshold, packed, unitsOf } from "../sampling.js";

/** @import { Definition } from "../dither.js" */
/** @import { Bits } from "../sampling.js" */
/** @import { Transaction } from "./database.js" */
/** @import { Ledger } from "./ledger.js" */

const MECHANISMS = ["randomized_response", "grr", "rappor", "oue", "subset_selection"];
const FLIPPED = ["randomized_response", "rappor"]; // only bits can be flipped again
const LARGEST = 64;

/**
 * Thrown for a second report in a pane, or one in an earlier pane, of a metric that is memoized or
 * has a crowd.
 */
export class AlreadyAnswered extends Error {
  /** @param {string} metric @param {number} next The next pane's start, ms since the epoch. */
  constructor(metric, next) {
    super(
      `this device already answered ${metric}, in the pane that ends at ` +
        `${new Date(next).toISOString()}: a device answers once per pane, in order of time; ` +
        "nothing was reported",
    );
    this.name = "AlreadyAnswered";
    this.metric = metric;
    this.next = next;
  }
}

/**
 * Returns a memoized metric's report: the value's permanent answer, or the last one without room.
 *
 * @param {Transaction} transaction
 * @param {Ledger} ledger
 * @param {Definition} definition
 * @param {unknown} value
 * @param {number} level
 * @param {number} time Milliseconds since the epoch.
 * @param {{permanent?: number, changes?: number}} options
 * @param {Bits} bits
 * @returns {Promise<Uint8Array>}
 * @throws {TypeError | RangeError} If the value or an option cannot be used.
 * @throws {AlreadyAnswered}
 * @throws {import("./ledger.js").BudgetSpent}
 * @internal
 */
export async function repeatOrDraw(
  transaction, ledger, definition, value, level, time, { permanent, changes = 1 }, bits,
) {
  const { name, mechanism, kind, levels } = definition;
  if (!MECHANISMS.includes(mechanism)) {
    throw wrong(`${name} is memoized`, `one of ${MECHANISMS.join(", ")}`);
  }
  if (!Number.isInteger(changes) || changes < 0) {
    throw outside(`changes = ${changes}`, "0 or more a period");
  }
  const epsilon = permanentEpsilon(definition, levels[level], permanent);
  const isMean = kind === "mean";
  const own = isMean ? unitOf(definition)(value) : categoryIndex(definition, value);
  const now = await ledger.advance(transaction);
  const device = (await transaction.get(["device", name])) ?? {
    word: bits.integers(1)[0],
    answered: -1,
  };
  const held = isMean ? sideOf(own, device.word) : own;
  await answerOnce(transaction, definition, time, device);

  const parts = Number(unitsOf(epsilon));
  const room = Math.min(changes + 1, isMean ? 2 : categoryCount(definition));
  const use = { used: now, number: await transaction.next() };
  await reserve(transaction, ledger, now, name, parts, room);
  const known = await transaction.all(["answer", name, parts]);
  const recent = known
    .filter((each) => each.value.used > now - ledger.period)
    .sort((one, other) => other.value.number - one.value.number);
  const isOwn = (/** @type {{key: (string | number)[]}} */ { key }) => key[3] === held;
  let kept = recent.find(isOwn) ?? (recent.length >= room ? recent[0] : known.find(isOwn));
  const isNew = kept === undefined;
  if (kept === undefined) {
    /** @type {Definition} */
    const once = { ...definition, levels: [epsilon], ...(isMean ? { range: [-1, 1] } : {}) };
    const report = mechanismOf(once).randomize(held, 0, bits);
    kept = { key: ["answer", name, parts, held], value: { report } };
  }
  await ledger.total(transaction, name, isNew ? parts : 0, 1);
  await transaction.put(kept.key, { ...kept.value, ...use });
  return flippedAgain(definition, levels[level], epsilon, kept.value.report, bits);
}

/**
 * Records a pane as answered.
 *
 * @param {Transaction} transaction
 * @param {Definition} definition
 * @param {number} time Milliseconds since the epoch.
 * @param {{answered: number}} device What is stored about the metric.
 * @returns {Promise<number>} The pane's start.
 * @throws {AlreadyAnswered}
 * @internal
 */
export async function answerOnce(transaction, { name, pane_seconds: seconds }, time, device) {
  const width = Math.round(Number(seconds) * 1000);
  const pane = time - (time % width);
  if (pane <= device.answered) throw new AlreadyAnswered(name, device.answered + width);
  await transaction.put(["device", name], { ...device, answered: pane });
  return pane;
}

/** @param {Definition} definition @param {number} own @param {number} [permanent] */
function permanentEpsilon({ name, mechanism }, own, permanent = own) {
  unitsOf(permanent);
  if (!(permanent >= own && permanent <= LARGEST)) {
    throw outside(
      `permanent = ${permanent} for ${name}`, `${own}, the report's own, to ${LARGEST}`,
    );
  }
  if (permanent > own && !FLIPPED.includes(mechanism)) {
    throw outside(
      `permanent = ${permanent} for ${mechanism}`,
      `${own}, the report's own; only bits can be flipped again (${FLIPPED.join(", ")})`,
    );
  }
  return permanent;
}

/** The side of the device's threshold, 1 or -1. @param {number} value @param {bigint} word */
function sideOf(value, word) {
  return Number(word >> 11n) < ((1 + value) / 2) * 2 ** 53 ? 1 : -1;
}

/**
 * Charges a report until a period's room is paid for; then only renews the oldest charge.
 *
 * @param {Transaction} transaction
 * @param {Ledger} ledger
 * @param {number} now
 * @param {string} metric
 * @param {number} parts
 * @param {number} room
 */
async function reserve(transaction, ledger, now, metric, parts, room) {
  const charged = (await transaction.all(["spent"])).filter(
    ({ value }) => value.isAnswer && value.metric === metric && value.parts === parts,
  );
  if (charged.length < room) {
    return ledger.charge(transaction, now, { metric, parts, reports: 1, isAnswer: true });
  }
  const [{ key, value }] = charged;
  await transaction.delete(key);
  const renewed = { ...value, reports: value.reports + 1 };
  await transaction.put(["spent", now, await transaction.next()], renewed);
}

/**
 * Returns a report made from a permanent answer: bits are flipped again, so that the report has the
 * law of its level. If both epsilons are equal, it is the answer itself.
 *
 * @param {Definition} definition
 * @param {number} epsilon
 * @param {number} permanent
 * @param {Uint8Array} answer
 * @param {Bits} bits
 */
function flippedAgain(definition, epsilon, permanent, answer, bits) {
  if (permanent === epsilon) return answer;
  const isMean = definition.kind === "mean";
  const parts = isMean ? 1n : 2n;
  const once = missThreshold(permanent, 1n, 1n, parts);
  const [below, among] = [missThreshold(epsilon, 1n, 1n, parts) - once, WORD - 2n * once];
  const drawn = [...bits.integers(isMean ? 1 : categoryCount(definition))];
  const limit = ((WORD - 1n) / among) * among;
  let pending = drawn.flatMap((word, i) => (word >= limit ? [i] : []));
  while (pending.length > 0) {
    const words = bits.integers(pending.length);
    pending.forEach((place, i) => {
      drawn[place] = words[i];
    });
    pending = pending.filter((place) => drawn[place] >= limit);
  }
  const again = packed(drawn.map((word) => word % among < below));
  return answer.map((byte, i) => byte ^ again[i]);
}
