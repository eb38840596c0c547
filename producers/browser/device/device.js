/**
 * A device that remembers: the budget that its owner has spent, answers that it repeats, reports
 * that wait for a network, and values that it gathers for one report.
 *
 * Each report is charged, randomized and queued in one transaction of IndexedDB: nothing is charged
 * or reported twice, and a report that was taken survives the end of the page.
 *
 * @module device
 */

import { checkRevision, coarsen } from "../definition.js";
import { withoutDenied } from "../deny.js";
import { listsOf } from "../dither.js";
import {
  LARGEST_ANSWER, LARGEST_DEFINITION, copied, outside, refuseCrowd, wrong,
} from "../checks.js";
import { levelOf, mechanismOf } from "../mechanisms.js";
import {
  ANONYMOUS, YEAR_10000, encodeBatch, jsonOf, newBatchId, refuseSeconds,
} from "../posting.js";
import { randomizeAnswer } from "../rounds.js";
import { publicKeyOf, sealedPost } from "../sealing.js";
import { systemBits, uniformBelow, unitsOf } from "../sampling.js";
import { Database } from "./database.js";
import { Ledger } from "./ledger.js";
import { answerOnce, repeatOrDraw } from "./permanent.js";
import { Queue, RELAY } from "./queue.js";
import { RollUp } from "./roll_up.js";

export {
  DeliveryError, canonicalForm, denyRule, encodeBatch, fingerprintOf, levelOf, post, randomize,
  report, revisionOf,
} from "../dither.js";
export { StorageError } from "./database.js";
export { BudgetSpent, Ledger } from "./ledger.js";
export { AlreadyAnswered } from "./permanent.js";
export { RollUp } from "./roll_up.js";

/** @typedef {import("../dither.js").Definition} Definition */
/** @typedef {import("../dither.js").PostOptions} PostOptions */
/** @typedef {import("../dither.js").Randomized} Randomized */
/** @typedef {import("../dither.js").Round} Round */
/** @import { Transaction } from "./database.js" */
/** @import { Inside, Put } from "./inside.js" */
/** @typedef {import("./ledger.js").Account} Account */
/** @typedef {import("./ledger.js").Lottery} Lottery */
/** @typedef {import("./queue.js").Failure} Failure */
/** @typedef {import("./queue.js").Totals} Totals */
/** @typedef {import("../dither.js").Value} Value */

/**
 * @typedef {object} DeviceOptions
 * @property {string} [database] The name of a person's database: "dither" by default.
 * @property {number} [budget] Epsilon in any period, for all metrics; stored until changed.
 * @property {Record<string, number>} [budgets] Budgets of single metrics, in addition.
 * @property {string} [period] The length of a period, "1d" by default; it never changes.
 * @property {string} [turn] With `tickets`, for a lottery: the length of a turn, such as "1d". In a
 *   turn the device answers one metric, by a roll-up over the turn. It never changes.
 * @property {Record<string, number>} [tickets] A metric's tickets divided by all tickets are the
 *   probability that it is drawn.
 * @property {string | URL} [relay] For metrics with a crowd: the address of the relay.
 * @property {string} [key] The public key's 64 hexadecimal digits, for which reports are sealed.
 * @property {string} [token] A token with the scope `report`, if the gateway requires one.
 * @property {number} [mostBytes] The most bytes of all waiting reports: 4 MiB by default.
 * @property {(failure: Failure) => void} [onFailure]
 * @property {() => number} [clock] Milliseconds since the epoch.
 */

/**
 * @typedef {object} ReportOptions
 * @property {number | Date} [time] When the values were true, now by default.
 * @property {Record<string, string>} [attributes] Public properties of this device.
 * @property {import("../deny.js").Deny} [deny] The page's own rule, for strings.
 * @property {number} [permanent] The epsilon of the answers that a memoized metric repeats.
 * @property {number} [changes] How often the answer may change in a period: 1 by default.
 */

const ADDRESS = /^(https?:\/\/[^/?#@\s\\]+)?(\/[^?#\s\\]*)?$/i;

/** Returns whether a text can be a gateway's address. @param {string} text */
function isAddress(text) {
  try {
    return ADDRESS.test(text) && new URL(text, "http://localhost").port !== "0";
  } catch {
    return false; // a port above 65535
  }
}

/**
 * @param {string} name
 * @param {unknown} address
 * @throws {TypeError}
 */
function addressOf(name, address) {
  const given = address instanceof URL ? address.href : address;
  const isWhole = name === "gateway" || /^https?:/i.test(String(given));
  if (typeof given === "string" && isAddress(given) && isWhole) {
    return given.replace(/\/+$/, "").replace(/\/v1\/reports$/, "");
  }
  throw wrong(
    `${name} = ${String(given).replace(/\/\/.*@/s, "//***@")}`,
    'an address such as "https://reports.example.org"; for the gateway, "" is the page\'s own',
  );
}

const METRIC = /^[a-z][a-z0-9_]{0,63}$/;
const LONGEST_FETCH_MS = 60_000;
const LOOK_MS = 60_000; // between two checks of the windows of roll-ups
const MOST_BATCH_BYTES = 200_000;
const MOST_BATCH_REPORTS = 1000;

/**
 * Thrown if a metric's definition means something else than the one that this device stores.
 */
export class DefinitionChanged extends TypeError {
  /** @param {string} metric @param {string} [reason] */
  constructor(metric, reason) {
    const changed =
      `the definition of ${metric} differs from the one that this device has answered: a new ` +
      "question needs another name";
    super(`${reason ?? changed}; nothing was reported`);
    this.name = "DefinitionChanged";
    this.metric = metric;
  }
}

/** Returns what the function `answer` stored, if pages may store. @param {string} name */
function storedAnswer(name) {
  try {
    return localStorage.getItem(`dither:${name}`);
  } catch {} // denied, or not of this kind of worker
}

/**
 * Returns the clock's time; throws if no calendar has it: the ledger's time never goes back.
 *
 * @param {number} now Milliseconds.
 */
function checkedTime(now) {
  if (now >= 0 && now < YEAR_10000) return now;
  throw outside(`the clock says ${now} ms`, "a time before the year 10000: set the clock right");
}

/** One person's device. Open one for each page; any number of pages may use one database. */
export class Device {
  #database;
  #gateway;
  #queue;
  /**
   * @type {{address: string, publicKey: Uint8Array<ArrayBuffer>, queue: Queue, trial?: Promise<unknown>} |
   *   undefined}
   */
  #relay;
  #tell;
  #clock;
  /** @type {Map<string, Promise<Definition>>} */
  #definitions = new Map();
  /** @type {Map<string, DefinitionChanged>} The errors of metrics that were changed. */
  #changed = new Map();
  /** @type {Map<string, RollUp>} */
  #rollUps = new Map();
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #looking;

  /**
   * @param {Database} database
   * @param {Ledger} ledger
   * @param {string} gateway
   * @param {DeviceOptions} options
   * @param {{address: string, publicKey: Uint8Array<ArrayBuffer>}} [relay]
   * @internal
   */
  constructor(database, ledger, gateway, options, relay) {
    this.#database = database;
    this.#gateway = gateway;
    this.#clock = options.clock ?? Date.now;
    this.#tell = (/** @type {Failure} */ failure) => {
      try {
        options.onFailure?.(failure);
      } catch (error) {
        console.error("onFailure raised an error", error);
      }
    };
    /** The owner's account. */
    this.ledger = ledger;
    this.#queue = new Queue(database, gateway, options, this.#tell);
    this.#queue.wake();
    if (relay !== undefined) {
      const { mostBytes } = options;
      const queue = new Queue(database, relay.address, { mostBytes }, this.#tell, RELAY);
      this.#relay = { ...relay, queue };
      queue.wake();
    }
  }

  /**
   * @param {string | URL} gateway The gateway's address, such as "https://reports.example.org"; ""
   *   for the page's own server.
   * @param {DeviceOptions} [options]
   * @returns {Promise<Device>}
   * @throws {TypeError | RangeError} If an option cannot be used.
   * @throws {StorageError} If there is no IndexedDB, or it cannot be used.
   */
  static async open(gateway, options = {}) {
    const address = addressOf("gateway", gateway);
    const { clock = Date.now, tickets = {}, relay, key } = options;
    if ((relay === undefined) !== (key === undefined)) {
      throw wrong(`relay = ${relay}, key = ${key}`, "both, or neither");
    }
    const sealing = relay === undefined ? undefined : {
      address: addressOf("relay", relay),
      publicKey: publicKeyOf(String(key)),
    };
    if (tickets === null || !Object.keys(tickets).every((name) => METRIC.test(name))) {
      throw wrong(`tickets = ${JSON.stringify(tickets)}`, "names of metrics, as in { late: 5 }");
    }
    const checked = () => checkedTime(clock());
    const database = await Database.open(options.database ?? "dither");
    try {
      const ledger = await Ledger.open(database, options, checked);
      return new Device(database, ledger, address, { ...options, clock: checked }, sealing);
    } catch (error) {
      database.close();
      throw error;
    }
  }

  /**
   * Returns a metric's definition: the one that this device knows by its name, or else the
   * gateway's, which is checked and stored. With a relay, the relay is asked for definitions, and
   * never the gateway.
   *
   * @param {string | Definition} metric A metric's name, or a definition that is part of the page.
   * @returns {Promise<Definition>}
   * @throws {TypeError} If the definition is invalid or has another meaning than the stored one
   *   (`DefinitionChanged`); or if it has a crowd, and this device cannot seal reports.
   */
  async definition(metric) {
    const name = typeof metric === "string" ? metric : metric.name;
    const known = this.#definitions.get(name);
    if (known === undefined || typeof metric !== "string") {
      const found = typeof metric === "string" ? this.#find(name) : this.#ship(metric);
      this.#definitions.set(name, found);
      found.catch(() => this.#definitions.get(name) === found && this.#definitions.delete(name));
    }
    const definition = await /** @type {Promise<Definition>} */ (this.#definitions.get(name));
    if (definition.crowd !== undefined) await this.#checkCrowd(definition);
    if (this.#changed.has(name)) throw this.#changed.get(name);
    return definition;
  }

  /**
   * Charges, randomizes and stores reports, all of them or none; they are sent in the background.
   *
   * @param {string | Definition} metric
   * @param {Value | Value[]} values Several values become one batch.
   * @param {number | number[]} epsilons The largest epsilon that the owner allows, or one for each.
   * @param {ReportOptions} [options]
   * @returns {Promise<{reports: number, denied: number}>} Once the reports are stored: their
   *   number, and how many strings a rule replaced by "other", which the gateway does not know.
   * @throws {TypeError | RangeError} If a value, an epsilon or the definition cannot be used.
   * @throws {import("./ledger.js").BudgetSpent}
   * @throws {import("./permanent.js").AlreadyAnswered} If a metric that is memoized or has a crowd
   *   was already reported in the pane.
   * @throws {StorageError}
   */
  async report(metric, values, epsilons, options = {}) {
    const held = copied(values); // the caller may change its own meanwhile
    const wanted = copied(epsilons);
    refuseSeconds(options.time);
    const definition = await this.definition(metric);
    const [all, each] = listsOf(definition, held, wanted);
    const { queued, denied } = await this.#database.transact((transaction) =>
      this.#put(transaction, definition, all, each, options),
    );
    await queued();
    return { reports: all.length, denied };
  }

  /**
   * Answers the open round of a minimum or maximum, if it is this device's turn.
   *
   * @param {string | Definition} metric
   * @param {number} value A value that does not change between rounds.
   * @param {number} epsilon
   * @param {Round} [round] The open round; fetched from the gateway by default.
   * @returns {Promise<boolean>} Whether this device has answered.
   * @throws {TypeError | RangeError} If the definition does not allow the round.
   * @throws {import("./ledger.js").BudgetSpent}
   */
  async answer(metric, value, epsilon, round) {
    const definition = await this.definition(metric);
    const { name, split, rounds } = definition;
    const path = `/v1/metrics/${encodeURIComponent(name)}/round`;
    const open = round ?? /** @type {Round} */ (await this.#fetch(path, LARGEST_ANSWER));
    const { level, report } = randomizeAnswer(definition, open, value, epsilon);
    const units = Number(unitsOf(definition.levels[level]));
    const isSplit = split === "budget";
    const queued = await this.#database.transact(async (transaction) => {
      const own = isSplit ? 0 : 1 + Number(uniformBelow(systemBits, BigInt(rounds ?? 1)));
      const before = storedAnswer(name);
      const first = before ? JSON.parse(before) : { own, answered: 0 };
      const turn = (await transaction.get(["round", name])) ?? first;
      const isOwn = turn.own === 0 || turn.own === open.number;
      const answers = isOwn && open.number > turn.answered;
      const answered = answers ? open.number : turn.answered;
      await transaction.put(["round", name], { own: turn.own, answered });
      if (!answers) return undefined;
      const parts = isSplit ? Math.ceil(units / Number(rounds)) : units;
      await this.ledger.pay(transaction, name, parts, 1);
      return this.#enqueue(transaction, definition, [level], [report], {
        time: this.#clock(),
        round: open.number,
      });
    });
    queued?.();
    return queued !== undefined;
  }

  /**
   * Returns a roll-up, which gathers values over windows of time, and reports once a window. Call
   * this when the page starts, whether there is something to add or not.
   *
   * @param {string | Definition} metric
   * @param {import("./roll_up.js").How} how
   * @param {string} window Such as "1h", "1d", "7d" or "28d": a multiple of the metric's pane.
   * @param {number} epsilon
   * @param {Omit<ReportOptions, "time"> & { nothing?: string }} [options] `nothing`: for "furthest"
   *   and "flags", the first category, which is reported for a window without values.
   * @returns {Promise<RollUp>}
   * @throws {TypeError | RangeError} If a parameter cannot be used.
   */
  async rollUp(metric, how, window, epsilon, options = {}) {
    /** @type {Inside} */
    const inside = {
      clock: this.#clock,
      ledger: this.ledger,
      tell: this.#tell,
      transact: (work) => this.#database.transact(work),
      put: (...given) => this.#put(...given),
    };
    const definition = await this.definition(metric);
    const rollUp = await new RollUp(inside, definition, how, window, epsilon, options).begin();
    this.#rollUps.set(`${definition.name} ${how} ${window}`, rollUp);
    this.#looking ??= setInterval(() => this.#rollUps.forEach((each) => each.look()), LOOK_MS);
    return rollUp;
  }

  /** What became of a metric's reports. @param {string} metric @returns {Promise<Totals>} */
  totals(metric) {
    return this.#queue.totals(metric);
  }

  /**
   * Resolves when the gateway has acknowledged all reports.
   *
   * @param {number} [timeout] Milliseconds.
   * @throws {import("../posting.js").DeliveryError} If a report still waits. It is sent later.
   */
  async flush(timeout = 30_000) {
    await Promise.all([this.#queue.flush(timeout), this.#relay?.queue.flush(timeout)]);
  }

  /** Stops what runs in this page. Waiting reports stay stored, and the next page sends them. */
  close() {
    clearInterval(this.#looking);
    this.#queue.close();
    this.#relay?.queue.close();
    this.#database.close();
  }

  // -- Reports ------------------------------------------------------------------------------------

  /**
   * Charges and randomizes values, and queues their reports.
   *
   * @param {Transaction} transaction
   * @param {Definition} definition
   * @param {Value[]} values
   * @param {number[]} epsilons
   * @param {ReportOptions} options
   * @param {Ledger | null} [ledger] Null if the reports are paid for already.
   * @returns {Promise<Put>}
   */
  async #put(transaction, definition, values, epsilons, options, ledger = this.ledger) {
    const { name, memoized, rounds } = definition;
    const { time = this.#clock(), attributes = {}, deny, permanent, changes } = options;
    if (rounds !== undefined) throw new TypeError(`${name} is asked in rounds: use answer`);
    if (permanent !== undefined && !memoized) {
      throw wrong(`permanent for ${name}`, "a metric that is memoized");
    }
    coarsen(definition, attributes);
    await this.#queue.checkRoom(transaction);
    const levels = epsilons.map((epsilon) => levelOf(definition, epsilon));
    const reported = values.map((value) => withoutDenied(definition, value, deny));
    const mechanism = mechanismOf(definition);
    /** @type {number[]} */
    const panes = [];
    if (definition.crowd !== undefined) {
      for (const _ of values) {
        const device = (await transaction.get(["device", name])) ?? { answered: -1 };
        panes.push(await answerOnce(transaction, definition, Number(time), device));
      }
    }
    /** @type {Uint8Array[]} */
    const reports = [];
    if (memoized && ledger !== null) {
      for (const [i, { value }] of reported.entries()) {
        const answer = await repeatOrDraw(
          transaction, ledger, definition, value, levels[i], Number(time),
          { permanent, changes }, systemBits,
        );
        reports.push(answer);
      }
    } else {
      const parts = levels.map((level) => Number(unitsOf(definition.levels[level])));
      await ledger?.pay(
        transaction, name, parts.reduce((sum, each) => sum + each, 0), values.length,
      );
      reports.push(
        ...reported.map(({ value }, i) => mechanism.randomize(value, levels[i], systemBits)),
      );
    }
    const denied = reported.filter((each) => each.denied).length;
    if (definition.crowd !== undefined) {
      return { queued: () => this.#seal(definition, panes, reports), denied };
    }
    const told = definition.max_batch_reports; // it is not in the fingerprint: any may come
    const limit = Number.isInteger(told) ? Number(told) : MOST_BATCH_REPORTS;
    const fitting = Math.floor(MOST_BATCH_BYTES / (mechanism.width + 1));
    const size = Math.max(1, Math.min(limit, MOST_BATCH_REPORTS, fitting));
    /** @type {(() => void)[]} */
    const queued = [];
    for (let first = 0; first < reports.length; first += size) {
      const part = [first, first + size];
      const given = { time, attributes };
      const [some, those] = [levels.slice(...part), reports.slice(...part)];
      queued.push(await this.#enqueue(transaction, definition, some, those, given));
    }
    return { queued: () => queued.forEach((each) => each()), denied };
  }

  /**
   * Seals reports and queues them for the relay. Nothing may be awaited within a transaction, so
   * this is done after the transaction that charged the reports: if the page ends between the two,
   * the reports are lost.
   *
   * @param {Definition} definition
   * @param {number[]} panes The starts of their panes.
   * @param {Uint8Array[]} reports
   */
  async #seal(definition, panes, reports) {
    const relay = this.#relay;
    if (relay === undefined) return refuseCrowd(definition);
    for (const [i, report] of reports.entries()) {
      const body = await sealedPost(definition, panes[i], report, relay.publicKey);
      const batch = { id: "", metric: definition.name, body, reports: 1 };
      (await this.#database.transact((transaction) => relay.queue.add(transaction, batch)))();
    }
  }

  /**
   * @param {Transaction} transaction
   * @param {Definition} definition
   * @param {number[]} levels
   * @param {Uint8Array[]} reports
   * @param {{time: number | Date, attributes?: Record<string, string>, round?: number}} options
   */
  #enqueue(transaction, definition, levels, reports, options) {
    const batchId = newBatchId();
    const body = encodeBatch(definition, levels, reports, { ...options, batchId });
    const id = Array.from(batchId, (byte) => byte.toString(16).padStart(2, "0")).join("");
    const { length } = levels;
    return this.#queue.add(transaction, { id, metric: definition.name, body, reports: length });
  }

  // -- Definitions --------------------------------------------------------------------------------

  /** The definition of a name: the stored one, or else the server's. @param {string} name */
  async #find(name) {
    const stored = await this.#database.transact((all) => all.get(this.#stored(name)));
    if (stored === undefined) return this.#pin(await this.#describe(name));
    this.#compare(name);
    return /** @type {Definition} */ (stored.definition);
  }

  /** A definition of the page; throws if another one is stored. @param {Definition} definition */
  async #ship(definition) {
    await this.#pin(definition);
    if (definition.crowd !== undefined && this.#relay !== undefined) this.#compare(definition.name);
    return definition;
  }

  /** Compares the server's definition of a name with the stored one. @param {string} name */
  #compare(name) {
    this.#describe(name)
      .then((definition) => this.#pin(definition))
      .catch((error) => {
        if (error instanceof DefinitionChanged) this.#changed.set(name, error);
        this.#tell({ kind: "definition", metric: name, detail: String(error) });
      });
  }

  /** A definition's key: a gateway's is never taken for a relay's. @param {string} name */
  #stored(name) {
    return [this.#relay === undefined ? "definition" : "relayDefinition", name];
  }

  /** The server's definition of a name. @param {string} name @returns {Promise<Definition>} */
  async #describe(name) {
    const path = `/v1/metrics/${encodeURIComponent(name)}`;
    const server = this.#relay?.address ?? this.#gateway;
    const definition = /** @type {Definition} */ (
      await this.#fetch(path, LARGEST_DEFINITION, server)
    );
    if (definition?.name !== name) throw new TypeError(`the gateway did not describe ${name}`);
    if (this.#relay !== undefined) {
      if (definition.crowd === undefined) {
        throw wrong(`metric ${name} of the relay has no crowd`, "a definition in place of the name");
      }
      const told = /** @type {any} */ (await this.#fetch("/v1/key", LARGEST_ANSWER, server));
      const digits = Array.from(this.#relay.publicKey, (byte) => byte.toString(16).padStart(2, "0"));
      if (String(told?.key).toLowerCase() !== digits.join("")) {
        const found = `relay ${server} collects ${name} for key ${told?.key}`;
        throw new DefinitionChanged(name, `${found}: expected the page's, ${digits.join("")}`);
      }
    }
    return definition;
  }

  /**
   * Throws if this device cannot seal reports of a metric, or no crowd can hide them.
   *
   * @param {Definition} definition
   * @throws {TypeError}
   */
  async #checkCrowd(definition) {
    if (this.#relay === undefined) return refuseCrowd(definition);
    const { name, levels, memoized, by = [] } = definition;
    if (levels.length !== 1 || memoized || by.length > 0) {
      throw wrong(`metric ${name} has a crowd`, "one level, not memoized, and no attributes");
    }
    await (this.#relay.trial ??= sealedPost(definition, 0, new Uint8Array(1), this.#relay.publicKey));
  }

  /** Stores the first definition of a name; refuses another. @param {Definition} definition */
  async #pin(definition) {
    const { name } = definition;
    const fingerprint = checkRevision(definition);
    mechanismOf(definition);
    const before = storedAnswer(name);
    await this.#database.transact(async (transaction) => {
      const stored = await transaction.get(this.#stored(name));
      const known = stored?.fingerprint ?? (before ? JSON.parse(before).fingerprint : fingerprint);
      if (known !== fingerprint) throw new DefinitionChanged(name);
      await transaction.put(this.#stored(name), { fingerprint, definition });
    });
    return definition;
  }

  /**
   * Returns what the gateway, or another server, answers.
   *
   * @param {string} path
   * @param {number} most The most bytes of the answer.
   * @param {string} [server]
   * @returns {Promise<unknown>}
   */
  async #fetch(path, most, server = this.#gateway) {
    const signal = AbortSignal.timeout(LONGEST_FETCH_MS);
    const answer = await fetch(server + path, { ...ANONYMOUS, signal });
    if (!answer.ok) throw new TypeError(`${server}${path}: the server answers ${answer.status}`);
    return jsonOf(answer, most);
  }
}
