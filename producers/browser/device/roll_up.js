/**
 * One number or value of a device for each window of time (`producers.device.roll_up` in Python).
 *
 * What is gathered is not randomized yet. It stays in the browser's database, and is deleted in the
 * transaction in which its report is made.
 *
 * @module roll_up
 */

import { withoutDenied } from "../deny.js";
import { outside, wrong } from "../checks.js";
import { levelOf, mechanismOf } from "../mechanisms.js";
import { systemBits, uniformBelow } from "../sampling.js";
import { millisecondsOf } from "./ledger.js";

/** @import { Inside } from "./inside.js" */
/** @import { ReportOptions } from "./device.js" */
/** @import { Transaction } from "./database.js" */
/** @import { Definition } from "../dither.js" */

const HOW = ["count", "sum", "last", "largest", "active"];
const OF_NOTHING = ["count", "sum", "active"]; // a window without values has a result, too: zero
const LONGEST_DELAY_MS = 3_600_000;
const MOST_RUNS = 8;
const AGAIN_MS = 60_000; // how long `add` waits after a report that failed

/**
 * @typedef {object} Course
 * @property {number} open The start of the first window that is not over.
 * @property {number} missed
 * @property {[number, number][]} [closed] Windows that are over, from and to: none is reported
 *   twice, also if the clock went forward and then back.
 */

/** Windows are in UTC, and begin at multiples of their length since 1970. From `Device.rollUp`. */
export class RollUp {
  #inside;
  #definition;
  #how;
  #epsilon;
  #options;
  #lateness;
  #delay;
  #due = 0;
  #name;

  /**
   * @param {Inside} inside
   * @param {Definition} definition
   * @param {"count" | "sum" | "last" | "largest" | "active"} how
   * @param {string} window
   * @param {number} epsilon
   * @param {Omit<ReportOptions, "time">} options
   * @throws {TypeError | RangeError}
   * @internal
   */
  constructor(inside, definition, how, window, epsilon, options) {
    const { name, rounds, range, edges } = definition;
    if (!HOW.includes(how)) throw wrong(`how = ${how}`, `one of ${HOW.join(", ")}`);
    if (rounds !== undefined) {
      throw wrong(`metric ${name} is asked in rounds`, "one that is not");
    }
    if (!["last", "active"].includes(how) && range === undefined && edges === undefined) {
      throw wrong(`how = ${how} for ${name}`, "a metric of numbers");
    }
    /** The length of a window, in milliseconds. */
    this.window = millisecondsOf("window", window);
    const pane = Math.round(Number(definition.pane_seconds) * 1000);
    if (!(pane > 0) || this.window % pane !== 0) {
      throw outside(`window = ${window}`, `a multiple of the pane, ${pane} ms`);
    }
    this.#lateness = Math.round(Number(definition.lateness_seconds) * 1000);
    if (!(this.#lateness > 0)) {
      throw outside(
        `metric ${name} has no lateness`,
        "for how long after a window's end its reports may still come, as in lateness = '1d'",
      );
    }
    levelOf(definition, epsilon);
    this.#inside = inside;
    this.#definition = definition;
    this.#how = how;
    this.#epsilon = epsilon;
    this.#options = options;
    this.#name = `${name} ${how} ${this.window}`;
    const longest = Math.floor(Math.min(LONGEST_DELAY_MS, this.#lateness / 4));
    this.#delay = Number(uniformBelow(systemBits, BigInt(longest + 1)));
  }

  /** Begins the first window, unless it has begun. @internal */
  async begin() {
    await this.#inside.transact((transaction) => this.#opened(transaction));
    return this;
  }

  /**
   * Adds a value to the present window; then reports windows that are over. It is stored when this
   * resolves. A report that fails goes to `onFailure`, and is tried again later.
   *
   * @param {import("./device.js").Value} [value] For "sum", "last" and "largest".
   * @throws {TypeError | RangeError} If the metric cannot have this value. Nothing is added then.
   * @throws {import("./database.js").StorageError}
   */
  async add(value) {
    const given = this.#checked(value);
    await this.#inside.transact(async (transaction) => {
      const now = this.#inside.clock();
      const { open, closed = [] } = await this.#opened(transaction);
      const start = afterClosed(closed, Math.max(now - (now % this.window), open));
      const held = await transaction.get(this.#key(start));
      const joined = held === undefined ? given : this.#joined(held, given);
      await transaction.put(this.#key(start), joined);
    });
    if (this.#inside.clock() < this.#due) return;
    try {
      await this.reportEnded();
    } catch (error) {
      this.#due = this.#inside.clock() + AGAIN_MS;
      const { name } = this.#definition;
      this.#inside.tell({ kind: "roll-up", metric: name, detail: String(error) });
    }
  }

  /**
   * Reports the windows that are over, each once. Call it when the page starts, too: a device that
   * did nothing in a window has something to report.
   *
   * @returns {Promise<number>} How many reports were made.
   * @throws As for `Device.report`. The window is kept.
   */
  async reportEnded() {
    for (let done = 0; ; done += 1) {
      if (!(await this.#reportOne())) return done;
    }
  }

  /** How many windows were not reported in time, and are not charged. @returns {Promise<number>} */
  async missed() {
    const found = await this.#inside.transact((transaction) => this.#opened(transaction));
    return found.missed;
  }

  // -- Windows ------------------------------------------------------------------------------------

  /** Reports the oldest window that is over, in one transaction. @returns {Promise<boolean>} */
  async #reportOne() {
    const { queued, isDone } = await this.#inside.transact(async (transaction) => {
      const now = this.#inside.clock();
      const { open } = await this.#endWindows(transaction, now);
      const [oldest] = await transaction.all(["gathered", this.#name], 1);
      const start = oldest === undefined ? Infinity : Number(oldest.key[2]);
      if (start > now - this.window - this.#delay) {
        this.#due = open + this.window + this.#delay;
        return { queued: () => undefined, isDone: false };
      }
      await transaction.delete(oldest.key);
      const time = start + this.window - 1;
      const options = { ...this.#options, time };
      const done = await this.#inside.put(
        transaction, this.#definition, [oldest.value], [this.#epsilon], options,
      );
      return { queued: done.queued, isDone: true };
    });
    queued();
    return isDone;
  }

  /** Closes the windows that are over. @param {Transaction} transaction @param {number} now */
  async #endWindows(transaction, now) {
    const { open, missed, closed = [] } = await this.#opened(transaction);
    const end = now - (now % this.window);
    const late = now - this.#lateness;
    const counted = late - (late % this.window); // the start of the first that is not late
    const rows = await transaction.all(["gathered", this.#name]);
    const known = rows.map(({ key }) => Number(key[2]));
    let more = known.filter((start) => start < counted).length;
    if (OF_NOTHING.includes(this.#how)) {
      const isPast = (/** @type {number} */ start) =>
        start < open || afterClosed(closed, start) > start;
      more = known.filter((start) => start < counted && isPast(start)).length;
      for (let start = afterClosed(closed, open); start < counted; ) {
        const run = Math.min(counted, ...closed.map(([from]) => (from > start ? from : Infinity)));
        more += (run - start) / this.window;
        start = afterClosed(closed, run);
      }
      for (let start = Math.max(open, counted); start < end; start += this.window) {
        const isNew = !known.includes(start) && afterClosed(closed, start) === start;
        if (isNew) await transaction.put(this.#key(start), 0);
      }
    }
    for (const start of known) if (start < counted) await transaction.delete(this.#key(start));
    const first = Math.max(open, counted);
    const after = {
      open: Math.max(open, end),
      missed: missed + more,
      closed: first < end ? withRun(closed, [first, end]) : closed,
    };
    await transaction.put(["gathering", this.#name], after);
    return after;
  }

  /**
   * The course of the windows, begun where there is none. If the clock was set back by more than
   * the lateness, what was in the future is not waited for: windows go on at the present.
   *
   * @param {Transaction} transaction
   * @returns {Promise<Course>}
   */
  async #opened(transaction) {
    const now = this.#inside.clock();
    const present = now - (now % this.window);
    const place = ["gathering", this.#name];
    /** @type {Course | undefined} */
    const found = await transaction.get(place);
    if (found === undefined) {
      const first = { open: present, missed: 0, closed: [] };
      await transaction.put(place, first);
      return first;
    }
    const closed = found.closed ?? [[0, found.open]]; // an earlier version's
    if (found.open - present <= this.#lateness + this.window) return { ...found, closed };
    const start = afterClosed(closed, present);
    for (const { key, value } of await transaction.all(["gathered", this.#name])) {
      if (Number(key[2]) < found.open || key[2] === start) continue;
      const held = await transaction.get(this.#key(start));
      const joined = held === undefined ? value : this.#joined(held, value);
      await transaction.put(this.#key(start), joined);
      await transaction.delete(key);
    }
    const again = { ...found, closed, open: present };
    await transaction.put(place, again);
    this.#due = 0;
    const detail = "the clock was set back: what was gathered is in the present window";
    this.#inside.tell({ kind: "roll-up", metric: this.#definition.name, detail });
    return again;
  }

  /** @param {number} start @returns {(string | number)[]} */
  #key(start) {
    return ["gathered", this.#name, start];
  }

  // -- Values -------------------------------------------------------------------------------------

  /** A value as it is stored. @param {unknown} value */
  #checked(value) {
    const how = this.#how;
    if (how === "count" || how === "active") {
      if (value === undefined) return 1;
      throw wrong(`value ${value} for how = ${how}`, "none");
    }
    const definition = this.#definition;
    const reported = withoutDenied(definition, value, this.#options.deny).value;
    mechanismOf(definition).randomize(reported, 0, systemBits); // what cannot be reported fails now
    if (how !== "last" && !Number.isFinite(reported)) {
      throw wrong(`value ${value}`, "a finite number");
    }
    return reported;
  }

  /** @param {any} held @param {any} given */
  #joined(held, given) {
    if (this.#how === "count" || this.#how === "sum") return held + given;
    return this.#how === "last" ? given : Math.max(held, given);
  }
}

/**
 * The first window from a start on that is not closed.
 *
 * @param {[number, number][]} closed
 * @param {number} start
 */
function afterClosed(closed, start) {
  return closed.reduce((found, [from, to]) => (found >= from && found < to ? to : found), start);
}

/**
 * Runs of closed windows, in order, and one more; of too many the oldest become one.
 *
 * @param {[number, number][]} closed
 * @param {[number, number]} run
 * @returns {[number, number][]}
 */
function withRun(closed, run) {
  /** @type {[number, number][]} */
  const runs = [];
  for (const [from, to] of [...closed, run].sort((a, b) => a[0] - b[0])) {
    const last = runs.at(-1);
    if (last !== undefined && from <= last[1]) last[1] = Math.max(last[1], to);
    else runs.push([from, to]);
  }
  if (runs.length > MOST_RUNS) runs.splice(0, 2, [runs[0][0], runs[1][1]]);
  return runs;
}
