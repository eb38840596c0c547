/**
 * One number or value of a device for each window of time (`producers.device.roll_up` in Python).
 *
 * Gathered values are not randomized yet. They stay in the browser's database, and are deleted in
 * the transaction that makes their report.
 *
 * @module roll_up
 */

import { flagged, labelled } from "../axes.js";
import { withoutDenied } from "../deny.js";
import { categoryIndex } from "../categories.js";
import { copied, outside, wrong } from "../checks.js";
import { levelOf, mechanismOf } from "../mechanisms.js";
import { LEVEL_UNITS, systemBits, uniformBelow, unitsOf } from "../sampling.js";
import { KEPT_MS, millisecondsOf } from "./ledger.js";

/** @import { Course, Inside } from "./inside.js" */
/** @import { ReportOptions } from "./device.js" */
/** @import { Transaction } from "./database.js" */
/** @import { Definition } from "../dither.js" */

/** @typedef {"count" | "sum" | "last" | "largest" | "active" | "furthest" | "flags"} How */

/**
 * @typedef {object} Ended A window that is over.
 * @property {number} start
 * @property {any} value Undefined if the window has no value.
 * @property {number} epsilon
 * @property {() => void | Promise<void>} [queued] A function to call when the window is claimed.
 */

const OF_CATEGORIES = ["furthest", "flags"];
const HOW = ["count", "sum", "last", "largest", "active", ...OF_CATEGORIES];
// a window without values has a result, too: zero, or the first category
const OF_NOTHING = ["count", "sum", "active", ...OF_CATEGORIES];
const LONGEST_DELAY_MS = 3_600_000;
const MOST_RUNS = 8;
const MOST_DUE = 10_000;

/** Windows are in UTC, and begin at multiples of their length since 1970. From `Device.rollUp`. */
export class RollUp {
  #inside;
  #definition;
  #how;
  #epsilon;
  #options;
  #nothing;
  #lateness;
  #longest;
  #name;
  /** @type {import("./ledger.js").Lottery | null} */
  #lottery = null;

  /**
   * @param {Inside} inside
   * @param {Definition} definition
   * @param {How} how
   * @param {string} window
   * @param {number} epsilon
   * @param {Omit<ReportOptions, "time"> & { nothing?: string }} options
   * @throws {TypeError | RangeError}
   * @internal
   */
  constructor(inside, definition, how, window, epsilon, options) {
    const { name, rounds, range, edges, categories, axes } = definition;
    const { nothing, ...others } = options;
    if (!HOW.includes(how)) throw wrong(`how = ${how}`, `one of ${HOW.join(", ")}`);
    if (rounds !== undefined) {
      throw wrong(`metric ${name} is asked in rounds`, "one that is not");
    }
    const isOfCategories = OF_CATEGORIES.includes(how);
    const isOfAny = isOfCategories || ["last", "active"].includes(how);
    if (!isOfAny && range === undefined && edges === undefined) {
      throw wrong(`how = ${how} for ${name}`, "a metric of numbers");
    }
    if (how === "flags" && !(axes && Object.values(axes).every(({ length }) => length === 2))) {
      throw wrong(`how = ${how} for ${name}`, "axes with two values each");
    }
    if (isOfCategories && !Array.isArray(categories)) {
      throw wrong(`how = ${how} for ${name}`, "a frequency of listed categories");
    }
    const first = isOfCategories ? categories?.[0] : undefined;
    if (nothing !== first) throw wrong(`nothing = ${nothing} for how = ${how}`, String(first));
    this.#nothing = first ?? (OF_NOTHING.includes(how) ? 0 : undefined);
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
    this.#options = others;
    this.#name = `${name} ${how} ${this.window}`;
    this.#longest = BigInt(Math.floor(Math.min(LONGEST_DELAY_MS, this.#lateness / 4)));
    if (definition.crowd !== undefined) this.#hide(definition.crowd);
  }

  /** Makes reports come while a relay waits. @param {import("../dither.js").Crowd} crowd */
  #hide({ wait_seconds: seconds }) {
    if (!OF_NOTHING.includes(this.#how)) {
      throw wrong(
        `how = ${this.#how} for ${this.#definition.name}, which has a crowd`,
        `one of ${OF_NOTHING.join(", ")}: no value may decide whether a window is reported`,
      );
    }
    this.#lateness = Math.round(seconds * 1000);
    this.#longest = BigInt(Math.floor(this.#lateness / 2));
  }

  /** Begins the first window, unless it has begun; warns if the budget is too small. @internal */
  async begin() {
    const { name, levels, memoized } = this.#definition;
    const { permanent, changes = 1 } = this.#options;
    const { ledger } = this.#inside;
    const more = Math.max(0, Math.ceil(ledger.period / this.window - 5 / 6));
    const reports = 1 + (memoized ? Math.min(more, changes) : more);
    this.#lottery = await ledger.lottery();
    if (this.#lottery !== null) this.#checkTurn(this.#lottery);
    await this.#inside.transact(async (transaction) => {
      const epsilon = await this.#allowedEpsilon(transaction);
      const parts = unitsOf(permanent ?? levels[levelOf(this.#definition, epsilon)]);
      const course = await this.#course(transaction, this.#inside.clock());
      await transaction.put(this.#place, course);
      for (const each of ["", name]) {
        if (reports * Number(parts) > (await transaction.get(["budget", each]))) {
          this.#tell(`${reports} reports may fall into a period, and cost more than its budget`);
        }
      }
    });
    await this.#isDrawn(this.#inside.clock());
    return this;
  }

  // -- The lottery --------------------------------------------------------------------------------

  /** Throws if it cannot take part. @param {import("./ledger.js").Lottery} lottery */
  #checkTurn({ turn, tickets }) {
    const { name, memoized, crowd } = this.#definition;
    if (this.window !== turn) {
      throw outside(`window = ${this.window} ms`, `the turn of the ledger's lottery, ${turn} ms`);
    }
    if (!Object.hasOwn(tickets, name)) {
      throw wrong(`metric ${name} has no tickets`, `one of ${Object.keys(tickets).join(", ")}`);
    }
    if (memoized || crowd !== undefined) {
      throw wrong(`metric ${name} is memoized, or has a crowd`, "one that is answered afresh");
    }
    this.#lateness = Math.min(this.#lateness, KEPT_MS - this.window);
  }

  /** Whether a moment's turn drew this metric; true without a lottery. @param {number} moment */
  async #isDrawn(moment) {
    if (this.#lottery === null) return true;
    const [turn] = await this.#inside.ledger.drawnTurns([this.#start(moment)]);
    return turn.metric === this.#definition.name;
  }

  /** The owner's epsilon; in a lottery at most the budget. @param {Transaction} transaction */
  async #allowedEpsilon(transaction) {
    let parts = Infinity;
    for (const name of this.#lottery === null ? [] : ["", this.#definition.name]) {
      parts = Math.min(parts, (await transaction.get(["budget", name])) ?? Infinity);
    }
    return Math.min(this.#epsilon, parts / Number(LEVEL_UNITS));
  }

  /**
   * Adds a value to the present window. It is stored when this resolves, unless a lottery drew
   * another metric; nothing is sent.
   *
   * @param {import("./device.js").Value} [value] For "flags" an axis; no value for "count" and
   *   "active".
   * @throws {TypeError | RangeError} If the metric cannot have this value. Nothing is added then.
   * @throws {import("./database.js").StorageError}
   */
  async add(value) {
    const given = this.#checked(copied(value));
    const now = this.#inside.clock();
    if (!(await this.#isDrawn(now))) return;
    await this.#inside.transact(async (transaction) => {
      const { closed, open } = await this.#course(transaction, now);
      const start = afterClosed(closed, this.#opened(open, now));
      if (this.#lottery !== null && start !== this.#start(now)) return; // the clock was set back
      await this.#join(transaction, start, given);
    });
  }

  /**
   * Reports the windows that are over, each once. The device does so each minute: call it when the
   * page starts, and never because something was added.
   *
   * @returns {Promise<number>} How many reports were made.
   * @throws As for `Device.report`. The window is kept, unless a lottery has paid for its report.
   */
  async reportEnded() {
    const now = this.#inside.clock();
    // a separate transaction: the delay that it draws stays even if a report is refused
    const due = await this.#inside.transact(async (transaction) => {
      await this.#look(transaction, now);
      return (await this.#course(transaction, now)).due;
    });
    if (this.#lottery !== null) {
      await this.#inside.ledger.drawnTurns([this.#start(now), ...due]);
    }
    for (let done = 0; ; ) {
      const ended = await this.#inside.transact((all) => this.#claim(all, now));
      if (ended === undefined) return done;
      done += Number(ended.queued !== undefined || (await this.#reportPaid(ended)));
      await ended.queued?.();
    }
  }

  /** Reports the windows that are over; passes errors to `onFailure`. @internal */
  look() {
    return this.reportEnded().catch((error) => this.#tell(String(error)));
  }

  /** How many windows were not reported in time, and are not charged. @returns {Promise<number>} */
  async missed() {
    return (await this.#inside.transact((all) => this.#course(all, 0))).missed;
  }

  // -- Windows ------------------------------------------------------------------------------------

  /**
   * Reports the oldest window that is over and has something to report. In a lottery it only pays
   * for the window, in a separate transaction, so that no value decides whether it is paid for.
   *
   * @param {Transaction} transaction
   * @param {number} now
   * @returns {Promise<Ended | undefined>} Undefined if there is none.
   */
  async #claim(transaction, now) {
    const course = await this.#course(transaction, now);
    while (course.due[0] <= now - this.window - course.delay) {
      const [start] = course.due;
      const { name, levels } = this.#definition;
      const isLottery = this.#lottery !== null;
      const turn = isLottery ? await transaction.get(["turn", start]) : undefined;
      if (isLottery && turn === undefined) return undefined; // another page looked: draw it first
      course.due.shift();
      const value = (await transaction.get(this.#key(start))) ?? this.#nothing;
      await transaction.delete(this.#key(start));
      await transaction.put(this.#place, course);
      if (isLottery ? turn.metric !== name || turn.isPaid : value === undefined) continue;
      const epsilon = await this.#allowedEpsilon(transaction);
      if (!isLottery) return this.#report(transaction, { start, value, epsilon });
      const parts = Number(unitsOf(levels[levelOf(this.#definition, epsilon)]));
      const reports = value === undefined ? 0 : 1;
      await this.#inside.ledger.ofTurn(start).pay(transaction, name, parts, reports);
      return { start, value, epsilon };
    }
    return undefined;
  }

  /** Reports a window that a lottery has paid for, if it has a value. @param {Ended} ended */
  async #reportPaid(ended) {
    if (ended.value === undefined) return false;
    const { queued } = await this.#inside.transact((all) => this.#report(all, ended, null));
    await queued?.();
    return true;
  }

  /**
   * @param {Transaction} transaction
   * @param {Ended} ended
   * @param {null} [ledger] Null: it is paid.
   * @returns {Promise<Ended>}
   */
  async #report(transaction, ended, ledger) {
    const options = { ...this.#options, time: ended.start + this.window - 1 };
    const { queued } = await this.#inside.put(
      transaction, this.#definition, [ended.value], [ended.epsilon], options, ledger,
    );
    return { ...ended, queued };
  }

  /**
   * Closes the windows that are over.
   *
   * @param {Transaction} transaction
   * @param {number} now
   */
  async #look(transaction, now) {
    const before = await this.#course(transaction, now);
    const { closed } = before;
    const open = this.#opened(before.open, now);
    const begin = Math.min(before.open, open);
    const end = this.#start(now);
    // the start of the first window that is not late, among the last MOST_DUE
    const counted = Math.max(this.#start(now - this.#lateness), end - MOST_DUE * this.window);
    const first = Math.max(begin, counted);
    const due = before.due.filter((start) => start >= counted);
    const uncovered = closed.reduce(
      (rest, [from, to]) => rest - Math.max(0, Math.min(to, counted) - Math.max(from, begin)),
      first - begin,
    );
    const isOfNothing = OF_NOTHING.includes(this.#how);
    let late = isOfNothing ? before.due.length - due.length + uncovered / this.window : 0;
    let { delay } = before;
    for (let start = first; start < end; start += this.window) {
      if (afterClosed(closed, start) !== start) continue;
      due.push(start);
      delay = Number(uniformBelow(systemBits, this.#longest + 1n));
    }
    const after = {
      open,
      delay,
      missed: before.missed,
      closed: first < end ? withRun(closed, [first, end]) : closed,
      due: due.sort((a, b) => a - b),
    };
    const present = afterClosed(after.closed, open);
    for (const { key, value } of await transaction.all(["gathered", this.#name])) {
      const start = /** @type {number} */ (key[2]);
      if (start === present || due.includes(start)) continue;
      await transaction.delete(key);
      if (start >= counted && this.#lottery === null) await this.#join(transaction, present, value); // of another clock
      else if (!isOfNothing) late += 1;
    }
    after.missed += late;
    if (open < before.open) {
      this.#tell("the clock was set back: what was gathered is in the present window");
    }
    if (open !== before.open || late > 0) await transaction.put(this.#place, after);
  }

  /**
   * Returns the course of the windows; begins one if there is none.
   *
   * @param {Transaction} transaction
   * @param {number} now
   * @returns {Promise<Course>}
   */
  async #course(transaction, now) {
    const found = await transaction.get(this.#place);
    return found ?? { open: this.#start(now), missed: 0, closed: [], due: [], delay: 0 };
  }

  /** @param {number} moment */
  #start(moment) {
    return moment - (moment % this.window);
  }

  /**
   * Returns the start of the first window that is not over. If the clock was set back by more than
   * the lateness, windows continue at the present.
   *
   * @param {number} open The start before this call.
   * @param {number} now
   */
  #opened(open, now) {
    const present = this.#start(now);
    return open - present > this.#lateness + this.window ? present : Math.max(open, present);
  }

  get #place() {
    return ["gathering", this.#name];
  }

  /** @param {string} detail */
  #tell(detail) {
    this.#inside.tell({ kind: "roll-up", metric: this.#definition.name, detail });
  }

  /** @param {number} start @returns {(string | number)[]} */
  #key(start) {
    return ["gathered", this.#name, start];
  }

  // -- Values -------------------------------------------------------------------------------------

  /** Returns a value in the form in which it is stored. @param {unknown} value */
  #checked(value) {
    const how = this.#how;
    if (how === "count" || how === "active") {
      if (value === undefined) return 1;
      throw wrong(`value ${value} for how = ${how}`, "none");
    }
    const definition = this.#definition;
    if (OF_CATEGORIES.includes(how)) {
      const category = how === "flags" ? flagged(definition, value) : value;
      return /** @type {string[]} */ (definition.categories)[categoryIndex(definition, category)];
    }
    const label = labelled(definition, value);
    const reported = withoutDenied(definition, label, this.#options.deny).value;
    mechanismOf(definition).randomize(reported, 0, systemBits); // what cannot be reported fails now
    if (how !== "last" && !Number.isFinite(reported)) {
      throw wrong(`value ${value}`, "a finite number");
    }
    return reported;
  }

  /**
   * Adds a value to a window.
   *
   * @param {Transaction} transaction
   * @param {number} start
   * @param {any} given
   */
  async #join(transaction, start, given) {
    const held = await transaction.get(this.#key(start));
    let joined = given;
    if (held !== undefined && this.#how !== "last") {
      const isSum = this.#how === "count" || this.#how === "sum";
      joined = isSum ? held + given || 0 : Math.max(held, given); // infinities may add up to NaN
      if (OF_CATEGORIES.includes(this.#how)) {
        const order = /** @type {string[]} */ (this.#definition.categories);
        const [first, second] = [order.indexOf(held), order.indexOf(given)];
        // of axes with two values each, an index has a bit for each
        joined = order[this.#how === "flags" ? first | second : Math.max(first, second)] ?? given;
      }
    }
    await transaction.put(this.#key(start), joined);
  }
}

/**
 * Returns the start of the first window from `start` on that is not closed.
 *
 * @param {[number, number][]} closed
 * @param {number} start
 */
function afterClosed(closed, start) {
  return closed.reduce((found, [from, to]) => (found >= from && found < to ? to : found), start);
}

/**
 * Returns ordered runs of closed windows with one more; if there are too many, the two oldest are
 * merged.
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
