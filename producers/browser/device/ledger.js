/**
 * The budget that a person's device has spent, and what is left (`producers.ledger` in Python).
 *
 * @module ledger
 */

import { outside, wrong } from "../checks.js";
import { LEVEL_UNITS, systemBits, uniformBelow, unitsOf } from "../sampling.js";
import { StorageError } from "./database.js";

/** @import { Database } from "./database.js" */
/** @import { Transaction } from "./database.js" */

/**
 * What was spent on one metric, or on all metrics.
 *
 * @typedef {object} Account
 * @property {string} metric Empty for all metrics together.
 * @property {number | null} budget Epsilon in any period; null: no limit.
 * @property {number} spent Epsilon in the last period.
 * @property {number | null} left
 * @property {number} reports The number of reports in the last period.
 * @property {number} everSpent Epsilon since the ledger began; a repeated answer costs once.
 * @property {number} everReports The number of reports since the ledger began.
 * @property {Date | null} moreAt When some of what was spent is free again.
 */

/**
 * How a device draws which metric it answers, and what it drew.
 *
 * @typedef {object} Lottery
 * @property {number} turn The length of a turn, in milliseconds.
 * @property {Record<string, number>} tickets In the order of names.
 * @property {string | null} drawn The metric of the present turn; null if nothing is drawn yet.
 */

/** @typedef {{metric: string, isPaid: boolean}} Turn */

const UNITS = Number(LEVEL_UNITS);
const ALL = "";
const DURATIONS = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 };

const LONGEST_TURN_MS = 31 * DURATIONS.d;
const MOST_TICKETS = 2 ** 24;
/** How long a draw is stored: an older turn is never drawn again. @internal */
export const KEPT_MS = 62 * DURATIONS.d;

/** Epsilon as text. @param {number} parts */
const shown = (parts) => String(parts / UNITS);

/** Thrown if a report costs more than is left. Nothing was randomized. */
export class BudgetSpent extends Error {
  /**
   * @param {string} metric
   * @param {number} asked The cost, in ten-thousandths of epsilon, as `left` and `budget`.
   * @param {number} left
   * @param {number} budget
   * @param {Date | null} freeAt
   * @param {boolean} ofMetric
   */
  constructor(metric, asked, left, budget, freeAt, ofMetric) {
    const whose = ofMetric ? `the budget of ${metric}` : "the budget of all metrics";
    const then =
      freeAt === null
        ? "the whole budget is smaller: use a smaller epsilon, or raise the budget"
        : `enough is free again from ${freeAt.toISOString()}`;
    super(
      `epsilon = ${shown(asked)} for ${metric}: ${shown(left)} is left of ${whose}, ` +
        `${shown(budget)}; ${then}; nothing was reported`,
    );
    this.name = "BudgetSpent";
    this.metric = metric;
    this.asked = asked / UNITS;
    this.left = left / UNITS;
    this.budget = budget / UNITS;
    /** When enough will be left; null if the report costs more than the whole budget. */
    this.freeAt = freeAt;
    /** Whether the metric's own budget is spent, and not that of all metrics. */
    this.ofMetric = ofMetric;
  }
}

/**
 * Returns the milliseconds of a duration such as "1d".
 *
 * @param {string} what
 * @param {string} duration
 * @throws {TypeError}
 * @internal
 */
export function millisecondsOf(what, duration) {
  const [, count, unit] = /^([0-9]{1,6})([smhdw])$/.exec(duration) ?? [];
  const found = Number(count) * DURATIONS[/** @type {keyof typeof DURATIONS} */ (unit)];
  if (!(found > 0)) throw wrong(`${what} = ${duration}`, 'a duration such as "1d"');
  return found;
}

/** Returns the tickets in the order of names. @param {Record<string, number>} tickets */
function checkedTickets(tickets) {
  const entries = Object.entries(tickets).sort(([a], [b]) => (a < b ? -1 : 1));
  const isCounted = (/** @type {[string, number]} */ [, count]) => Number.isInteger(count) && count > 0;
  const sum = ticketCount(tickets);
  if (!entries.every(isCounted) || !(sum > 0 && sum <= MOST_TICKETS)) {
    throw wrong(
      `tickets = ${JSON.stringify(tickets)}`,
      `whole numbers above 0, at most ${MOST_TICKETS} in all`,
    );
  }
  return Object.fromEntries(entries);
}

/** @param {Record<string, number>} tickets */
function ticketCount(tickets) {
  return Object.values(tickets).reduce((total, count) => total + count, 0);
}

/**
 * Draws a metric with the probability of its tickets divided by all tickets.
 *
 * @param {Record<string, number>} tickets In the order of names.
 * @param {import("../sampling.js").Bits} [bits]
 * @returns {string}
 * @internal
 */
export function drawnMetric(tickets, bits = systemBits) {
  let left = Number(uniformBelow(bits, BigInt(ticketCount(tickets))));
  return Object.keys(tickets).filter((name) => (left -= tickets[name]) < 0)[0];
}

/**
 * One person's account of epsilon. In any interval as long as the period, reports cost at most the
 * budget in all: a charge expires one period later, and costs add up.
 */
export class Ledger {
  #database;
  #clock;
  #turnStart;

  /**
   * @param {Database} database
   * @param {number} period The period of the budget, in milliseconds.
   * @param {() => number} clock Milliseconds since the epoch.
   * @param {number} [turnStart] The start of the turn that this ledger pays for.
   * @internal
   */
  constructor(database, period, clock, turnStart) {
    this.#database = database;
    this.#clock = clock;
    this.#turnStart = turnStart;
    /** The period of the budget, in milliseconds. */
    this.period = period;
  }

  /**
   * Stores the given budgets, and returns the ledger; other budgets stay.
   *
   * @param {Database} database
   * @param {{budget?: number, budgets?: Record<string, number>, period?: string, turn?: string,
   *   tickets?: Record<string, number>}} options
   * @param {() => number} clock
   * @returns {Promise<Ledger>}
   * @throws {TypeError | RangeError} If a budget or the period cannot be used.
   * @internal
   */
  static async open(database, { budget, budgets = {}, period, turn, tickets }, clock) {
    const all = budget === undefined ? {} : { [ALL]: budget };
    const given = Object.entries({ ...budgets, ...all });
    const parts = given.map(([name, epsilon]) => [name, Number(unitsOf(epsilon))]);
    const wished = period === undefined ? undefined : millisecondsOf("period", period);
    const kept = await database.transact(async (transaction) => {
      const known = await transaction.get(["setting", "period"]);
      if (known !== undefined && wished !== undefined && wished !== known) {
        throw new RangeError(
          `period = ${period}: this ledger has a period of ${known} ms; leave it out, or use ` +
            "another database",
        );
      }
      const own = known ?? wished ?? DURATIONS.d;
      await transaction.put(["setting", "period"], own);
      for (const [name, epsilon] of parts) await transaction.put(["budget", name], epsilon);
      if (turn !== undefined || tickets !== undefined) {
        const now = Math.max(clock(), (await transaction.get(["setting", "latest"])) ?? 0);
        await storeLottery(transaction, own, turn, tickets, now);
      }
      return own;
    });
    return new Ledger(database, kept, clock);
  }

  /**
   * Returns the accounts by metric; the first, with the empty name, is that of all metrics.
   *
   * @returns {Promise<Map<string, Account>>}
   */
  accounts() {
    return this.#database.transact(async (transaction) => {
      const expired = (await this.#now(transaction)) - this.period;
      const spent = (await transaction.all(["spent"]))
        .map(({ key, value }) => ({ ...value, time: Number(key[1]) }))
        .filter(({ time }) => time > expired);
      const budgets = new Map(
        (await transaction.all(["budget"])).map(({ key, value }) => [String(key[1]), value]),
      );
      const totals = new Map(
        (await transaction.all(["total"])).map(({ key, value }) => [String(key[1]), value]),
      );
      const names = new Set([ALL, ...budgets.keys(), ...totals.keys()]);
      const sum = (/** @type {any[]} */ list, /** @type {string} */ key) =>
        list.reduce((all, each) => all + each[key], 0);
      return new Map(
        [...names].sort().map((metric) => {
          const own = spent.filter((each) => metric === ALL || each.metric === metric);
          const ever = metric === ALL ? [...totals.values()] : [totals.get(metric) ?? {}];
          const budget = budgets.get(metric) ?? null;
          const parts = sum(own, "parts");
          const account = {
            metric,
            budget: budget === null ? null : budget / UNITS,
            spent: parts / UNITS,
            left: budget === null ? null : Math.max(0, budget - parts) / UNITS,
            reports: sum(own, "reports"),
            everSpent: (sum(ever, "parts") || 0) / UNITS,
            everReports: sum(ever, "reports") || 0,
            moreAt: own.length > 0 ? new Date(own[0].time + this.period) : null,
          };
          return [metric, account];
        }),
      );
    });
  }

  /**
   * Returns the epsilon that a report of a metric may cost now; null if there is no limit.
   *
   * @param {string} [metric] By default all metrics together.
   * @returns {Promise<number | null>}
   */
  async left(metric = ALL) {
    const accounts = await this.accounts();
    const left = [ALL, metric].map((name) => accounts.get(name)?.left ?? Infinity);
    return Math.min(...left) === Infinity ? null : Math.min(...left);
  }

  // -- The lottery --------------------------------------------------------------------------------

  /**
   * Returns how the device draws which metric it answers; null without a lottery.
   *
   * @returns {Promise<Lottery | null>}
   */
  lottery() {
    return this.#database.transact(async (transaction) => {
      const stored = await transaction.get(["setting", "lottery"]);
      if (stored === undefined) return null;
      const now = this.#clock();
      const present = await transaction.get(["turn", now - (now % stored.turn)]);
      return { ...stored, drawn: present?.metric ?? null };
    });
  }

  /**
   * Returns the draws of turns, and makes those that were not made before. They are stored in a
   * separate transaction, so that no later failure undoes them.
   *
   * @param {number[]} starts
   * @returns {Promise<Turn[]>}
   * @throws {StorageError} If a turn is in the future, or more than 62 days ago.
   * @internal
   */
  async drawnTurns(starts) {
    const turns = [];
    for (const start of starts) {
      turns.push(
        await this.#database.transact(async (transaction) => {
          const { tickets } = await transaction.get(["setting", "lottery"]);
          return drawTurn(transaction, tickets, start, await this.#now(transaction));
        }),
      );
    }
    return turns;
  }

  /** This ledger, to pay for the turn that begins at `start`. @param {number} start @internal */
  ofTurn(start) {
    return new Ledger(this.#database, this.period, this.#clock, start);
  }

  /**
   * Records that the turn is paid for; without a lottery, does nothing.
   *
   * @param {Transaction} transaction
   * @param {number} now
   * @param {string} metric
   * @throws {TypeError}
   */
  async #claimTurn(transaction, now, metric) {
    const lottery = await transaction.get(["setting", "lottery"]);
    if (lottery === undefined) return;
    const start = this.#turnStart ?? NaN;
    const turn = start >= 0 ? await transaction.get(["turn", start]) : undefined;
    if (turn?.metric !== metric || turn.isPaid || now < start + lottery.turn) {
      throw new TypeError(
        "this ledger has a lottery, so it pays for nothing but the metric that it drew for a " +
          `turn, once the turn is over: report ${metric} by a roll-up, or with another database`,
      );
    }
    await transaction.put(["turn", start], { ...turn, isPaid: true });
    await transaction.deleteThrough(["turn"], ["turn", now - KEPT_MS]);
  }

  // -- Charges ------------------------------------------------------------------------------------

  /** Returns the time, at least the latest in the ledger. @param {Transaction} transaction */
  async #now(transaction) {
    return Math.max(this.#clock(), (await transaction.get(["setting", "latest"])) ?? 0);
  }

  /**
   * Returns the time, at least the latest in the ledger; deletes charges that have expired.
   *
   * @param {Transaction} transaction
   * @returns {Promise<number>} Milliseconds.
   * @internal
   */
  async advance(transaction) {
    const now = await this.#now(transaction);
    await transaction.put(["setting", "latest"], now);
    await transaction.deleteThrough(["spent"], ["spent", now - this.period]);
    return now;
  }

  /**
   * Charges reports now.
   *
   * @param {Transaction} transaction
   * @param {string} metric
   * @param {number} parts The cost, in ten-thousandths of epsilon.
   * @param {number} reports
   * @throws {BudgetSpent}
   * @internal
   */
  async pay(transaction, metric, parts, reports) {
    const now = await this.advance(transaction);
    await this.charge(transaction, now, { metric, parts, reports });
    await this.total(transaction, metric, parts, reports);
  }

  /**
   * @param {Transaction} transaction
   * @param {number} now
   * @param {{metric: string, parts: number, reports: number, isAnswer?: boolean}} charge
   * @throws {BudgetSpent}
   * @internal
   */
  async charge(transaction, now, charge) {
    const { metric, parts } = charge;
    await this.#claimTurn(transaction, now, metric);
    const rows = await transaction.all(["spent"]);
    /** @type {BudgetSpent | undefined} */
    let tight;
    for (const name of [metric, ALL]) {
      const budget = await transaction.get(["budget", name]);
      if (budget === undefined) continue;
      const own = rows.filter(({ value }) => name === ALL || value.metric === name);
      const left = Math.max(0, own.reduce((rest, { value }) => rest - value.parts, budget));
      if (left >= parts || (tight && tight.left <= left / UNITS)) continue;
      let freed = left;
      const last = own.find(({ value }) => (freed += value.parts) >= parts);
      const freeAt = parts <= budget && last ? new Date(Number(last.key[1]) + this.period) : null;
      tight = new BudgetSpent(metric, parts, left, budget, freeAt, name !== ALL);
    }
    if (tight) throw tight;
    await transaction.put(["spent", now, await transaction.next()], charge);
  }

  /**
   * Adds reports and their cost to a metric's total since the ledger began.
   *
   * @param {Transaction} transaction
   * @param {string} metric
   * @param {number} parts
   * @param {number} reports
   * @internal
   */
  async total(transaction, metric, parts, reports) {
    const before = (await transaction.get(["total", metric])) ?? { parts: 0, reports: 0 };
    const after = { parts: before.parts + parts, reports: before.reports + reports };
    await transaction.put(["total", metric], after);
  }
}

/**
 * Stores the length of a turn, which is fixed, and the tickets for turns that are not drawn yet.
 *
 * @param {Transaction} transaction
 * @param {number} period
 * @param {string} [turn]
 * @param {Record<string, number>} [tickets]
 * @param {number} [now]
 * @throws {TypeError | RangeError}
 */
async function storeLottery(transaction, period, turn, tickets, now = 0) {
  const stored = await transaction.get(["setting", "lottery"]);
  const wished = turn === undefined ? stored?.turn : millisecondsOf("turn", turn);
  const given = tickets === undefined ? stored?.tickets : checkedTickets(tickets);
  if (wished === undefined || given === undefined) {
    throw wrong(`turn = ${turn}, tickets = ${JSON.stringify(tickets)}`, "both, or neither");
  }
  if (stored !== undefined && wished !== stored.turn) {
    throw new RangeError(
      `turn = ${turn}: this ledger has turns of ${stored.turn} ms; leave it out, or use another ` +
        "database",
    );
  }
  if (!(wished >= period && wished <= LONGEST_TURN_MS)) {
    throw outside(`turn = ${turn}`, `at least the period, ${period} ms, and at most 31d`);
  }
  if ((await transaction.all(["answer"], 1)).length > 0) {
    throw outside("a lottery in a database that repeats answers", "another database");
  }
  if (stored !== undefined && JSON.stringify(stored.tickets) !== JSON.stringify(given)) {
    await drawTurn(transaction, stored.tickets, now - (now % wished), now); // new tickets: later
  }
  await transaction.put(["setting", "lottery"], { turn: wished, tickets: given });
}

/**
 * Returns the draw of a turn; draws and stores it if that was not done before.
 *
 * @param {Transaction} transaction
 * @param {Record<string, number>} tickets
 * @param {number} start
 * @param {number} now
 * @returns {Promise<Turn>}
 */
async function drawTurn(transaction, tickets, start, now) {
  const stored = await transaction.get(["turn", start]);
  if (stored !== undefined) return stored;
  if (!(start > now - KEPT_MS && start <= now)) {
    throw new StorageError(
      `the clock asks about ${new Date(start).toISOString()}, and the ledger's time is ` +
        `${new Date(now).toISOString()}: expected a turn of the last 62 days`,
    );
  }
  const turn = { metric: drawnMetric(tickets), isPaid: false };
  await transaction.put(["turn", start], turn);
  return turn;
}
