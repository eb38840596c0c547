/**
 * Batches that wait for a gateway's acknowledgement, sealed reports that wait for a relay's, and
 * the code that posts them.
 *
 * A batch has its id and its bytes from the transaction in which its reports were made. Whichever
 * page of this origin is open posts it unchanged until it is acknowledged, so it is counted once.
 *
 * @module queue
 */

import { DeliveryError, explanation, postOnce, waitMs } from "../posting.js";
import { StorageError } from "./database.js";

/** @import { Database } from "./database.js" */
/** @import { Transaction } from "./database.js" */

/**
 * What became of a metric's reports on this device.
 *
 * @typedef {object} Totals
 * @property {number} taken Reports that were put into the queue.
 * @property {number} delivered Reports that the gateway has acknowledged.
 * @property {number} refused Reports that the gateway, or the relay, refused for good.
 * @property {number} left Reports that wait.
 */

/**
 * Something that went wrong in the background.
 *
 * @typedef {object} Failure
 * @property {"delivery" | "refused" | "definition" | "roll-up" | "storage"} kind A batch did not
 *   arrive, and is posted again; a batch can never be counted, and is lost; the gateway's
 *   definition cannot be used; a window is not reported yet, or may not be; the browser stores
 *   nothing.
 * @property {string} detail
 * @property {number} [status] The HTTP status; 0 if there was no answer.
 * @property {string} [metric]
 * @property {number} [reports]
 * @property {number} [retryIn] Milliseconds until the next attempt.
 */

/** @import { Batch, Receiver } from "./inside.js" */

const MOST_BYTES = 4 * 2 ** 20;
const LONGEST_PAUSE_MS = 3_600_000;
const OF_ALL = [401, 408, 429, 503]; // statuses that do not depend on the batch
const [MOST_ERRORS, LONGEST_FAILING_MS] = [20, 7 * 86_400_000]; // a batch is given up after both
const LONGEST_POST_MS = 60_000; // a batch without an answer by then is posted again
const KEPT_ALIVE = 60_000; // bytes that a browser sends after the end of a page: 64 KiB

/** @type {Receiver} */
const GATEWAY = {
  path: "/v1/reports",
  stored: "batch",
  until: "until",
  refused: [400, 413, 422],
  mostRefusals: 3, // one refusal may be due to a truncated request
  isAccepted: ({ status, told }, { id }) => status === 202 && told?.batch_id === id,
};
/** It takes sealed reports, which cannot be sealed again. @type {Receiver} @internal */
export const RELAY = {
  path: "/v1/sealed",
  stored: "sealed",
  until: "relayUntil",
  refused: [400, 409, 410, 413, 415],
  mostRefusals: 1,
  isAccepted: ({ status, told }) => status === 202 && told?.status === "accepted",
  headers: { "Content-Type": "application/octet-stream" },
};

/** @internal */
export class Queue {
  #database;
  #receiver;
  #url;
  #token;
  #mostBytes;
  #tell;
  /** @type {Map<number, Batch>} This page's batches, which are posted when it ends. */
  #own = new Map();
  /** @type {number | undefined} The number of the batch under way. */
  #posting;
  #failures = 0;
  /** @type {Map<number, number>} When to post each batch again that alone has failed. */
  #later = new Map();
  /** Until when the server wants no posts. */
  #until = 0;
  /** How often a run was due since the one under way began; 0 if none is under way. */
  #runs = 0;
  #isClosed = false;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  #stop = new AbortController();

  /**
   * @param {Database} database
   * @param {string} address
   * @param {{token?: string, mostBytes?: number}} options
   * @param {(failure: Failure) => void} tell
   * @param {Receiver} [receiver]
   */
  constructor(database, address, { token, mostBytes = MOST_BYTES }, tell, receiver = GATEWAY) {
    this.#mostBytes = mostBytes;
    this.#database = database;
    this.#receiver = receiver;
    this.#url = address + receiver.path;
    this.#token = token;
    this.#tell = tell;
    const { signal } = this.#stop;
    globalThis.addEventListener?.("online", () => this.#hurry(), { signal });
    globalThis.addEventListener?.("pagehide", () => this.#end(), { signal });
    globalThis.document?.addEventListener(
      "visibilitychange", () => document.visibilityState === "hidden" && this.#end(), { signal },
    );
  }

  /** Posts waiting batches soon; after a failure, when its pause is over. */
  wake() {
    if (!this.#failures) this.#schedule(0);
  }

  /** Posts waiting batches now, whatever has failed before. */
  #hurry() {
    this.#later.clear();
    this.#run();
  }

  /**
   * Returns until when the server wants no posts; 0 if that is unknown, or too far away because a
   * clock was set back.
   *
   * @param {Transaction} transaction
   * @returns {Promise<number>} Milliseconds since the epoch.
   */
  async #askedUntil(transaction) {
    const until = (await transaction.get(["setting", this.#receiver.until])) ?? 0;
    return until - Date.now() <= 2 * LONGEST_PAUSE_MS ? until : 0;
  }

  /** @param {number} pause Milliseconds. */
  #schedule(pause) {
    clearTimeout(this.#timer);
    if (!this.#isClosed) this.#timer = setTimeout(() => this.#run(), pause);
  }

  /** Stops posting; waiting batches stay stored. */
  close() {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    this.#stop.abort();
  }

  /**
   * Stores a batch.
   *
   * @param {Transaction} transaction
   * @param {Omit<Batch, "refusals">} given
   * @returns {Promise<() => void>} A function to call when the transaction is done.
   */
  async add(transaction, given) {
    const batch = { ...given, refusals: 0 };
    const number = await transaction.next();
    await transaction.put([this.#receiver.stored, number], batch);
    await this.#grow(transaction, batch.body.length);
    await this.#count(transaction, batch.metric, "taken", batch.reports);
    this.#until = await this.#askedUntil(transaction);
    return () => {
      this.#own.set(number, batch);
      this.wake();
    };
  }

  /** @param {Transaction} transaction @throws {StorageError} If the queue is full. */
  async checkRoom(transaction) {
    const waiting = await this.#bytes(transaction);
    if (waiting < this.#mostBytes) return; // false if it is not a number
    throw new StorageError(`${waiting} bytes wait, at most ${this.#mostBytes}`);
  }

  /** The bytes of all waiting batches. @param {Transaction} transaction @returns {Promise<number>} */
  async #bytes(transaction) {
    return (await transaction.get(["setting", "bytes"])) ?? 0;
  }

  /** @param {string} metric @returns {Promise<Totals>} */
  totals(metric) {
    return this.#database.transact(async (transaction) => {
      const found = await transaction.get(["sent", metric]);
      const { taken, delivered, refused } = { taken: 0, delivered: 0, refused: 0, ...found };
      return { taken, delivered, refused, left: taken - delivered - refused };
    });
  }

  /**
   * Posts until no batch waits.
   *
   * @param {number} timeout Milliseconds.
   * @throws {DeliveryError} If a batch still waits. It is kept, and sent later.
   */
  async flush(timeout) {
    const deadline = performance.now() + timeout; // a clock that is set changes nothing
    this.#hurry();
    for (;;) {
      const [next] = await this.#database.transact((transaction) =>
        transaction.all([this.#receiver.stored], 1),
      );
      if (next === undefined) return;
      if (!(performance.now() < deadline)) {
        throw new DeliveryError(
          `not acknowledged within ${timeout} ms; it is kept, and sent later`, next.value.body, 0,
        );
      }
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }

  // -- Sending ------------------------------------------------------------------------------------

  /**
   * Posts batches, the oldest first; one page of this origin at a time, if the browser has locks.
   */
  async #run() {
    if (this.#isClosed || this.#runs++) return;
    /** @type {number | undefined} */
    let rest;
    try {
      const locks = globalThis.navigator?.locks;
      const name = `dither-send:${this.#url}`;
      rest = locks
        ? await locks.request(name, { ifAvailable: true }, (lock) => (lock ? this.#send() : 1000))
        : await this.#send();
    } catch (error) {
      rest = this.#failed({ kind: "storage", detail: String(error) }, null);
    }
    if (this.#runs > 1) rest = 0; // one was due meanwhile
    this.#runs = 0;
    if (rest !== undefined) this.#schedule(rest);
  }

  /**
   * If a single batch fails, it is posted again later, and the other batches continue. If two
   * batches fail in a row, the gateway is assumed to fail, and all batches wait.
   *
   * @returns {Promise<number | undefined>} How long to wait; undefined if no batch is left.
   */
  async #send() {
    for (let alone = 0; !this.#isClosed; ) {
      const now = performance.now();
      const { waiting, next, batch } = await this.#database.transact(async (transaction) => {
        this.#until = await this.#askedUntil(transaction);
        const numbers = await transaction.numbers([this.#receiver.stored]);
        const found = numbers.find((number) => !(Number(this.#later.get(number)) > now));
        const value = found && (await transaction.get([this.#receiver.stored, found]));
        return { waiting: numbers, next: found, batch: value };
      });
      if (!waiting.length) {
        this.#own.clear(); // another page may have sent them
        return undefined;
      }
      const rest = this.#until - Date.now();
      if (rest > 0) return rest;
      if (next === undefined) {
        return Math.min(...waiting.map((number) => Number(this.#later.get(number)))) - now;
      }
      const { pause, isAlone } = await this.#post(next, batch);
      if (!isAlone && pause > 0) return pause;
      if (isAlone) this.#later.set(next, performance.now() + pause);
      else this.#later.delete(next);
      alone = isAlone ? alone + 1 : 0;
      if (alone > 1) {
        this.#failures += 1;
        return this.#pause(this.#failures, null);
      }
    }
    return undefined;
  }

  /**
   * @param {number} number
   * @param {Batch} batch
   * @returns {Promise<{pause: number, isAlone: boolean}>} How long to wait, in milliseconds, and
   *   whether only this batch has to wait.
   */
  async #post(number, batch) {
    const { metric, reports } = batch;
    const failure = /** @type {const} */ ({ kind: "delivery", metric, reports });
    this.#posting = number;
    const stop = new AbortController();
    const end = () => stop.abort(`no answer for ${LONGEST_POST_MS} ms`);
    const timer = setTimeout(end, LONGEST_POST_MS);
    this.#stop.signal.onabort = end;
    try {
      const answer = await this.#sent(batch, {
        keepalive: batch.body.length < KEPT_ALIVE,
        signal: stop.signal,
      });
      if (this.#receiver.isAccepted(answer, batch)) {
        await this.#remove(number, batch, "delivered");
        this.#failures = 0;
        return { pause: 0, isAlone: false };
      }
      const { status } = answer;
      const after = answer.headers.get("Retry-After");
      const isProblem = answer.headers.get("Content-Type")?.startsWith("application/problem+json");
      const detail = explanation(answer);
      if (status >= 400 && after === null && !OF_ALL.includes(status)) {
        const errors = await this.#fail(number, batch, isProblem === true, status);
        if (!errors) {
          this.#tell({ ...failure, kind: "refused", detail, status });
          return { pause: 0, isAlone: false };
        }
        const retryIn = this.#pause(errors, null, LONGEST_PAUSE_MS);
        this.#tell({ ...failure, detail, status, retryIn });
        return { pause: retryIn, isAlone: true };
      }
      const pause = this.#failed({ ...failure, detail, status }, after);
      if (after !== null) {
        this.#until = Date.now() + pause;
        await this.#database.transact((all) => all.put(["setting", this.#receiver.until], this.#until));
      }
      return { pause, isAlone: false };
    } catch (error) {
      const told = { ...failure, detail: String(error), status: 0 };
      return { pause: this.#isClosed ? 0 : this.#failed(told, null), isAlone: false };
    } finally {
      this.#posting = undefined;
      clearTimeout(timer);
    }
  }

  /** @param {Batch} batch @param {RequestInit} init */
  #sent({ body }, init) {
    const { headers } = this.#receiver;
    return postOnce(this.#url, body, this.#token, headers ? { headers, ...init } : init);
  }

  /** @param {Failure} failure @param {string | null} after @returns {number} */
  #failed(failure, after) {
    this.#failures += 1;
    const retryIn = this.#pause(this.#failures, after);
    this.#tell({ ...failure, retryIn });
    return retryIn;
  }

  /**
   * @param {number} failures
   * @param {string | null} after
   * @param {number} [last] The longest pause that doubling reaches.
   */
  #pause(failures, after, last) {
    return Math.min(Math.max(waitMs(failures, after, last), 1000), LONGEST_PAUSE_MS);
  }

  /**
   * Counts an error that only the batch can have caused; gives the batch up after enough refusals,
   * or after a week of other errors that the gateway itself answered. A week without answers gives
   * up no batch.
   *
   * @param {number} number
   * @param {Batch} batch
   * @param {boolean} isProblem
   * @param {number} status
   * @returns {Promise<number>} How many errors there were; 0 if the batch is given up.
   */
  async #fail(number, batch, isProblem, status) {
    const { refusals, errors = 0, failing = Date.now() } = batch;
    const isRefused = isProblem && this.#receiver.refused.includes(status);
    const failed = {
      ...batch,
      refusals: refusals + Number(isRefused),
      errors: errors + 1,
      failing,
    };
    const isOld = failed.errors >= MOST_ERRORS && Date.now() - failing >= LONGEST_FAILING_MS;
    if (failed.refusals >= this.#receiver.mostRefusals || (isProblem && isOld)) {
      await this.#remove(number, batch, "refused");
      return 0;
    }
    await this.#database.transact(async (transaction) => {
      if ((await transaction.get([this.#receiver.stored, number])) === undefined) return; // another page did
      await transaction.put([this.#receiver.stored, number], failed);
    });
    return failed.errors;
  }

  /** @param {number} number @param {Batch} batch @param {"delivered" | "refused"} as */
  async #remove(number, batch, as) {
    await this.#database.transact(async (transaction) => {
      if ((await transaction.get([this.#receiver.stored, number])) === undefined) return; // another page did
      await transaction.delete([this.#receiver.stored, number]);
      await this.#grow(transaction, -batch.body.length);
      await this.#count(transaction, batch.metric, as, batch.reports);
    });
    this.#own.delete(number);
  }

  /**
   * Posts this page's batches when it ends, in requests that outlive it. The next page posts a
   * batch again if it is unknown whether it arrived.
   */
  #end() {
    let room = KEPT_ALIVE;
    if (this.#failures > 0 || this.#until > Date.now()) return;
    for (const [number, batch] of this.#own) {
      room -= batch.body.length;
      if (room < 0) return;
      if (number === this.#posting || this.#later.has(number)) continue;
      this.#sent(batch, { keepalive: true })
        .then(async (one) => {
          if (this.#receiver.isAccepted(one, batch)) await this.#remove(number, batch, "delivered");
        })
        .catch(() => undefined); // it is stored, and posted again
    }
  }

  /** @param {Transaction} transaction @param {number} more */
  async #grow(transaction, more) {
    await transaction.put(["setting", "bytes"], (await this.#bytes(transaction)) + more);
  }

  /**
   * @param {Transaction} transaction
   * @param {string} metric
   * @param {string} what
   * @param {number} more
   */
  async #count(transaction, metric, what, more) {
    const found = (await transaction.get(["sent", metric])) ?? {};
    await transaction.put(["sent", metric], { ...found, [what]: (found[what] ?? 0) + more });
  }
}
