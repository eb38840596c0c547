/**
 * Encodes batches of reports, and posts them to a gateway.
 *
 * @module posting
 */

import { checkRevision, coarsen } from "./definition.js";
import { LARGEST_ANSWER, outside, refuseCrowd, shown, wrong } from "./checks.js";
import { mechanismOf } from "./mechanisms.js";

/** @import { Definition } from "./dither.js" */

const BATCH_ID_BYTES = 16;
/** In milliseconds since the epoch; a gateway accepts no later times. @internal */
export const YEAR_10000 = 253_402_300_800_000;
const EXPECTED_TIME =
  "a Date, or whole milliseconds (not seconds) since 1970, before the year 10000";
const LEAST_MS = 10_000_000_000;

/** @type {WeakSet<Definition>} Definitions whose revision is right. */
const checked = new WeakSet();

/**
 * Returns 16 random bytes, which identify a batch and say nothing about its sender.
 *
 * @returns {Uint8Array}
 */
export function newBatchId() {
  return crypto.getRandomValues(new Uint8Array(BATCH_ID_BYTES));
}

/**
 * Throws if an application's time is before April 1970, because it is then in seconds. The device's
 * clock is not checked, as it may be wrong.
 *
 * @param {unknown} time
 * @throws {RangeError}
 * @internal
 */
export function refuseSeconds(time) {
  const isSeconds = typeof time === "number" && time > 0 && time < LEAST_MS;
  if (isSeconds) throw outside(`time = ${time}`, EXPECTED_TIME);
}

/**
 * Encodes reports as one serialized `ReportBatch` (producers/wire/reports.proto).
 *
 * @param {Definition} definition
 * @param {number[]} levels
 * @param {Uint8Array[]} reports
 * @param {{time?: number | Date, batchId?: Uint8Array, round?: number, attributes?: Record<string,
 *   string>}} [options] `time`: when the values were true, in milliseconds since the epoch, now by
 *   default (0: when Kafka receives the batch); `batchId`: 16 bytes under which the batch is
 *   counted once; `round`: the answered round; `attributes`: those of the device; only those that
 *   the metric uses are sent, and values that it does not declare are sent as "other".
 * @returns {Uint8Array}
 * @throws {TypeError | RangeError} If the definition is incomplete or states a wrong revision, or
 *   something else cannot be encoded.
 */
export function encodeBatch(definition, levels, reports, options = {}) {
  const { time = Date.now(), batchId = newBatchId(), round = 0, attributes = {} } = options;
  refuseCrowd(definition);
  const { width } = mechanismOf(definition);
  if (!checked.has(definition)) checkRevision(definition);
  checked.add(definition);
  const isLevel = (/** @type {number} */ level) => level in definition.levels;
  const isReport = (/** @type {Uint8Array} */ report) => report?.length === width;
  const areWhole = Array.from(levels).every(isLevel) && Array.from(reports).every(isReport);
  if (levels.length !== reports.length || !areWhole) {
    throw outside(
      `${levels.length} levels and ${reports.length} reports of ${definition.name}`,
      `as many of both, and ${width} bytes a report`,
    );
  }
  if (batchId.length !== BATCH_ID_BYTES) {
    throw outside(`batchId of ${batchId.length} bytes`, `${BATCH_ID_BYTES}`);
  }
  const milliseconds = typeof time === "number" || time instanceof Date ? Number(time) : NaN;
  if (!Number.isInteger(milliseconds) || milliseconds < 0 || milliseconds >= YEAR_10000) {
    throw outside(`time = ${shown(time)}`, EXPECTED_TIME);
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
const PATIENCE_MS = 300_000; // a server that asks for a longer pause is not waited for

/**
 * Requests say nothing about their sender: they have no cookies and no referrer, and nothing is
 * cached. They follow no redirects.
 *
 * @internal
 */
export const ANONYMOUS = Object.freeze(
  /** @type {RequestInit} */ ({
    credentials: "omit",
    referrerPolicy: "no-referrer",
    cache: "no-store",
    redirect: "error",
  }),
);

/**
 * Thrown if it is unknown whether Kafka has a batch.
 *
 * `body` is the batch: `post(url, error.body)` sends the same batch again, even after a restart of
 * the page, and the batch is counted once. Do not call `report` again: it would randomize the
 * values anew, and spend their epsilon again.
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
 * @property {string} [token] A token with the scope `report`, if the gateway requires one.
 * @property {number} [attempts] How often the batch is posted at most; 5 by default.
 * @property {AbortSignal} [signal]
 */

/**
 * A gateway's answer to a batch.
 *
 * @typedef {object} Answer
 * @property {number} status
 * @property {Headers} headers
 * @property {any} told The parsed body; null if it is not JSON.
 * @internal
 */

/**
 * Returns the parsed body of an answer; null if it is not JSON.
 *
 * @param {Response} answer
 * @param {number} most The most bytes that are read, because a server may send endlessly.
 * @throws {RangeError} If the body has more bytes.
 * @internal
 */
export async function jsonOf(answer, most) {
  const [reader, decoder] = [answer.body?.getReader(), new TextDecoder()];
  let [text, size] = ["", 0];
  for (;;) {
    const { done, value } = (await reader?.read()) ?? { done: true };
    if (done) break;
    size += value.length;
    if (size > most) {
      reader?.cancel();
      throw outside(answer.url, `an answer of at most ${most} bytes`);
    }
    text += decoder.decode(value, { stream: true });
  }
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/**
 * Throws for an address that `fetch` refuses, or whose host it takes for a scheme.
 *
 * @param {string | URL} url
 * @throws {TypeError}
 */
function checkAddress(url) {
  try {
    const { protocol, username, password } = new URL(url, globalThis.location?.href);
    if (/^https?:$/.test(protocol) && username + password === "") return;
  } catch {
    // no address
  }
  throw wrong(
    `url = ${shown(url).replace(/\/\/.*@/s, "//***@")}`,
    'an address such as "https://reports.example.org/v1/reports"; nothing was reported',
  );
}

/**
 * Posts an encoded batch once.
 *
 * @param {string | URL} url
 * @param {Uint8Array} body
 * @param {string} [token]
 * @param {RequestInit} [init]
 * @returns {Promise<Answer>}
 * @internal
 */
export async function postOnce(url, body, token, init) {
  /** @type {Record<string, string>} */
  const headers = { "Content-Type": "application/x-protobuf" };
  if (token) headers.Authorization = `Bearer ${token}`;
  const sent = /** @type {BodyInit} */ (body);
  const answer = await fetch(url, { ...ANONYMOUS, method: "POST", headers, body: sent, ...init });
  const told = await jsonOf(answer, LARGEST_ANSWER);
  return { status: answer.status, headers: answer.headers, told };
}

/**
 * Posts an encoded batch until Kafka has it, and waits between attempts as the server asks.
 *
 * @param {string | URL} url The gateway's `/v1/reports`.
 * @param {Uint8Array} body From `encodeBatch`.
 * @param {PostOptions} [options]
 * @returns {Promise<{batch_id: string, reports: number}>}
 * @throws {TypeError} If the address cannot be used.
 * @throws {DeliveryError}
 */
export async function post(url, body, { token, attempts = 5, signal } = {}) {
  checkAddress(url);
  let told = "no attempt";
  let status = 0;
  for (let attempt = 1; attempt <= attempts; attempt += 1) {
    /** @type {string | null} */
    let after = null;
    try {
      const answer = await postOnce(url, body, token, { signal });
      status = answer.status;
      if (status === 202 && typeof answer.told?.batch_id === "string") return answer.told;
      after = answer.headers.get("Retry-After");
      told = explanation(answer);
      if (status === 404 || status === 405) told += "; the gateway takes reports at /v1/reports";
      const isCut = status === 202 && answer.told === null;
      if (!RETRY_STATUS.includes(status) && !isCut) break;
    } catch (error) {
      if (signal?.aborted) throw new DeliveryError("aborted", body, status);
      const { cause } = /** @type {Error} */ (error);
      told = cause ? `${String(error)} (${String(cause)})` : String(error); // Node's has the reason
      // OpenSSL says so where no TLS is
      told += /wrong version/.test(told) ? "; write http://" : `; is a gateway at ${url}?`;
      status = 0;
    }
    const pause = waitMs(attempt, after);
    if (attempt === attempts || pause > PATIENCE_MS) break;
    await wait(pause, signal);
  }
  throw new DeliveryError(`the batch was not acknowledged: ${told}`, body, status);
}

/** The status, detail and remedy of an answer, as text. @param {Answer} answer @internal */
export function explanation({ status, told }) {
  return [`${status}`, told?.detail, told?.remedy].filter(Boolean).join(": ");
}

/**
 * Returns the pause before the next attempt: it doubles from a second to a minute, or is what the
 * server asks for; up to a quarter is added at random, so that devices which failed together do not
 * retry together.
 *
 * @param {number} attempt
 * @param {string | null} after The header Retry-After: seconds, or a date.
 * @param {number} [last] The longest pause that doubling reaches, in milliseconds.
 * @internal
 */
export function waitMs(attempt, after, last = LAST_WAIT_MS) {
  const doubled = Math.min(FIRST_WAIT_MS * 2 ** (attempt - 1), last);
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
