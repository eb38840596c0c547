/**
 * Answers to the rounds in which a minimum or maximum is searched for.
 *
 * @module rounds
 */

import { checkSearch, couldAsk } from "./definition.js";
import { numberOf, outside, wrong } from "./checks.js";
import { levelOf, mechanismOf } from "./mechanisms.js";
import { encodeBatch, post } from "./posting.js";
import { systemBits, uniformBelow } from "./sampling.js";

/** @import { Definition } from "./dither.js" */
/** @import { Randomized } from "./dither.js" */
/** @import { Round } from "./dither.js" */
/** @import { PostOptions } from "./posting.js" */
/** @import { Bits } from "./sampling.js" */

/**
 * Answers at random whether a value is at or beyond a round's threshold. Each call spends the
 * level's epsilon, or a round's share of it if the budget is split.
 *
 * @param {Definition} definition The definition of a minimum or maximum.
 * @param {Round} round
 * @param {number} value Clipped to the range.
 * @param {number} epsilon The largest epsilon that the owner allows, rounded down to a level.
 * @param {Bits} [bits] The browser's cryptographic generator, except in tests.
 * @returns {Randomized}
 * @throws {TypeError | RangeError} If the round, the value or the epsilon cannot be used.
 */
export function randomizeAnswer(definition, round, value, epsilon, bits = systemBits) {
  const { name, kind, range } = definition;
  const threshold = checkRound(definition, round);
  if (range === undefined) throw new TypeError(`${name}: a definition without a range`);
  const inside = Math.min(Math.max(numberOf(value, name), range[0]), range[1]);
  const isBeyond = kind === "minimum" ? inside <= threshold : inside >= threshold;
  const level = levelOf(definition, epsilon);
  const report = mechanismOf(definition).randomize(isBeyond ? 1 : -1, level, bits);
  return { level, report };
}

/**
 * Returns the threshold of a round, if the definition allows it; the round's sender is not trusted.
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
    throw wrong(`round ${number} of ${metric}`, `an open one of ${name}`);
  }
  if (!couldAsk(definition, number, threshold)) {
    throw outside(
      `round ${number} of ${name}, threshold ${threshold}`,
      `1 to ${rounds}, and the middle of an interval that the search can have come to`,
    );
  }
  return threshold;
}

/**
 * What a browser stores of a search, under the name of its metric.
 *
 * @typedef {object} Turn
 * @property {string} fingerprint The fingerprint of the definition that it was first asked by.
 * @property {number} own The round that this browser drew; 0 if it answers all rounds.
 * @property {number} answered The last round that it has answered.
 */

/**
 * Returns whether this browser answers a round now, and records that it does: it answers a round at
 * most once, even after a restart, and, if the users are split, only the round that it drew.
 * Another definition of the same name does not start the search again.
 *
 * @param {Definition} definition
 * @param {Round} round
 * @param {Pick<Storage, "getItem" | "setItem">} [storage] The storage of this person's browser.
 * @returns {boolean}
 * @throws {TypeError | RangeError} If the definition does not allow the round, or differs from the
 *   definition of this name before.
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
 * Answers a round, if it is this browser's turn, and posts the answer. Two pages of one browser
 * take turns one after the other (by `navigator.locks`, which pages over plain HTTP lack).
 *
 * @param {string | URL} url The gateway's `/v1/reports`.
 * @param {Definition} definition
 * @param {Round} round
 * @param {number} value A value that does not change between rounds.
 * @param {number} epsilon
 * @param {PostOptions} [options]
 * @returns {Promise<boolean>} Whether this browser has answered.
 * @throws {TypeError | RangeError} As `randomizeAnswer` and `takeTurn`; nothing was answered.
 * @throws {DeliveryError}
 */
export async function answer(url, definition, round, value, epsilon, options = {}) {
  const { level, report } = randomizeAnswer(definition, round, value, epsilon);
  const turn = () => takeTurn(definition, round); // a round that cannot be answered uses up no turn
  const locks = globalThis.navigator?.locks;
  const takes = locks ? await locks.request(`dither:${definition.name}`, turn) : turn();
  if (!takes) return false;
  const batch = { round: round.number };
  await post(url, encodeBatch(definition, [level], [report], batch), options);
  return true;
}
