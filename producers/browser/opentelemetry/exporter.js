/**
 * An exporter for the OpenTelemetry SDK (`producers.otel` in Python): each instrument that is
 * mapped to a metric gives one value in an export, which is randomized in the browser.
 *
 *     import { DitherMetricExporter } from "@dither/opentelemetry";
 *
 *     const exporter = new DitherMetricExporter(device, {
 *       "app.presses": { metric: "presses", epsilon: 1, how: "sum", window: "1d" },
 *       "app.views": { metric: "page", epsilon: 1, category: "page" },
 *     });
 *     const reader = new PeriodicExportingMetricReader({ exporter });
 *
 * It imports no code of the SDK: it knows types of instruments and points by number and name.
 *
 * @module exporter
 */

/** @import { Definition, Device, ReportOptions, RollUp } from "@dither/device" */

/**
 * What to do with the values of an instrument. With `how` and `window` they are gathered, and
 * reported once a window; otherwise each export reports one value.
 *
 * @typedef {object} Mapped
 * @property {string | Definition} metric A metric's name, or a definition that is part of the page.
 * @property {number} epsilon The largest epsilon of one report.
 * @property {Of} [of] Which number of a histogram is reported: "mean" by default.
 * @property {string} [category] The attribute whose values are the metric's categories.
 * @property {"sum" | "last" | "largest" | "active"} [how] As for `Device.rollUp`.
 * @property {string} [window] The length of a window, such as "1d".
 * @property {Omit<ReportOptions, "time">} [options] As for `Device.report`.
 */
/** @typedef {"mean" | "sum" | "count" | "smallest" | "largest"} Of */

/**
 * @typedef {object} Point
 * @property {Record<string, unknown>} attributes
 * @property {[number, number]} endTime
 * @property {any} value
 */
/**
 * @typedef {object} Data
 * @property {{name: string}} descriptor
 * @property {number} aggregationTemporality
 * @property {number} dataPointType
 * @property {boolean} [isMonotonic]
 * @property {Point[]} dataPoints
 */
/** @typedef {{scopeMetrics: {metrics: any[]}[]}} Exported */
/** @typedef {{code: number, error?: Error}} Result */

const AGAIN_MS = 60_000;
const DELTA = 0;
const CUMULATIVE = 1;
const GAUGE = 2;
const SUM = 3;
const OF = ["mean", "sum", "count", "smallest", "largest"];
const HOW = ["sum", "last", "largest", "active"];

/** Thrown for data points that have no value to report. */
class Unusable extends Error {
  /** @param {string} reason */
  constructor(reason) {
    super(reason);
    this.reason = reason;
  }
}

/** Exports what instruments measured on one person's device, as randomized reports. */
export class DitherMetricExporter {
  #device;
  #mapped;
  /** @type {Map<string, RollUp>} */
  #rollUps = new Map();
  /** @type {Map<string, unknown>} Why a roll-up could not be made. */
  #errors = new Map();
  #begun;
  /** @type {Map<string, number>} */
  #reported = new Map();
  /** @type {Map<string, Map<string, number>>} */
  #dropped = new Map();
  #isShutDown = false;

  /**
   * @param {Device} device
   * @param {Record<string, Mapped>} mapped What to do with each instrument, by its name.
   * @throws {TypeError} If an entry of `mapped` cannot be used.
   */
  constructor(device, mapped) {
    for (const [name, { of = "mean", how, window }] of Object.entries(mapped)) {
      if (!OF.includes(of)) throw new TypeError(`of = ${of} for ${name}: expected ${OF.join(", ")}`);
      if (how !== undefined && !HOW.includes(how)) {
        throw new TypeError(`how = ${how} for ${name}: expected ${HOW.join(", ")}`);
      }
      if ((how === undefined) !== (window === undefined)) {
        throw new TypeError(`${name}: expected how and window together, or none of them`);
      }
    }
    this.#device = device;
    this.#mapped = new Map(Object.entries(mapped));
    this.#begun = Promise.all([...this.#mapped].map(([name, one]) => this.#begin(name, one)));
  }

  /** How many values were reported or gathered, by instrument. */
  get reported() {
    return Object.fromEntries(this.#reported);
  }

  /** How many data points are in no report, by instrument and reason. */
  get dropped() {
    return Object.fromEntries([...this.#dropped].map(([name, all]) => [name, Object.fromEntries(all)]));
  }

  /**
   * Tells the SDK what to export: the levels of up-down counters, and the increases of all others.
   *
   * @param {string} instrumentType
   */
  selectAggregationTemporality(instrumentType) {
    return instrumentType.endsWith("UP_DOWN_COUNTER") ? CUMULATIVE : DELTA;
  }

  /**
   * Reports the values of mapped instruments; what cannot be reported is counted in `dropped`.
   *
   * @param {Exported} metrics
   * @param {(result: Result) => void} done
   */
  export(metrics, done) {
    this.#export(metrics).then(done, (error) => done({ code: 1, error }));
  }

  /** Resolves when the gateway has acknowledged everything that this device has reported. */
  async forceFlush() {
    await this.#device.flush();
  }

  /** Stops exporting. The device stays open. */
  async shutdown() {
    this.#isShutDown = true;
  }

  /** @param {Exported} metrics @returns {Promise<Result>} */
  async #export(metrics) {
    /** @type {Map<string, Data[]>} */
    const found = new Map();
    for (const data of metrics.scopeMetrics.flatMap((scope) => scope.metrics)) {
      const { name } = data.descriptor;
      if (data.dataPoints.length > 0) found.set(name, [...(found.get(name) ?? []), data]);
    }
    /** @type {Error | undefined} */
    let failed;
    for (const [name, data] of found) {
      const mapped = this.#mapped.get(name);
      try {
        if (mapped === undefined) this.#drop(name, data, "unmapped");
        else {
          if (this.#isShutDown) throw new Unusable("shut_down");
          await this.#take(name, mapped, data);
          this.#reported.set(name, (this.#reported.get(name) ?? 0) + 1);
        }
      } catch (error) {
        failed = error instanceof Error ? error : new Error(String(error));
        this.#drop(name, data, failed instanceof Unusable ? failed.reason : failed.name);
      }
    }
    return failed === undefined ? { code: 0 } : { code: 1, error: failed };
  }

  /** Reports or gathers a value. @param {string} name @param {Mapped} mapped @param {Data[]} data */
  async #take(name, { metric, epsilon, of = "mean", category, how, options = {} }, data) {
    if (how !== undefined) await this.#begun;
    const gathered = this.#rollUps.get(name);
    if (how !== undefined && gathered === undefined) throw this.#errors.get(name);
    const definition = await this.#device.definition(metric);
    const { range, edges } = definition;
    const isOfNumbers = range !== undefined || edges !== undefined;
    if (isOfNumbers !== (category === undefined)) {
      throw new TypeError(
        `${definition.name}: expected ${isOfNumbers ? "no category" : "category, an attribute's key"}`,
      );
    }
    check(data);
    const value = category === undefined ? valueOf(data, of) : categoryOf(data, of, category);
    if (gathered === undefined) {
      await this.#device.report(metric, value, epsilon, options);
      return;
    }
    if (how === "sum" && !isAdditive(data, of)) throw new Unusable("not_additive");
    if (how !== "active") await gathered.add(value);
    else if (typeof value === "string" || value > 0) await gathered.add();
  }

  /**
   * Creates the roll-up of an instrument, used or not, because the gateway sees when a definition
   * is fetched.
   *
   * @param {string} name
   * @param {Mapped} mapped
   */
  async #begin(name, mapped) {
    const { metric, how, window, epsilon, options } = mapped;
    if (how === undefined || window === undefined || this.#isShutDown) return;
    try {
      const made = await this.#device.rollUp(metric, how, window, epsilon, options);
      this.#rollUps.set(name, made);
      made.reportEnded().catch(() => undefined); // the device tries again, and tells of errors
    } catch (error) {
      this.#errors.set(name, error);
      setTimeout(() => this.#begin(name, mapped), AGAIN_MS);
    }
  }

  /** @param {string} name @param {Data[]} data @param {string} reason */
  #drop(name, data, reason) {
    const points = data.reduce((sum, { dataPoints }) => sum + dataPoints.length, 0);
    const reasons = this.#dropped.get(name) ?? new Map();
    this.#dropped.set(name, reasons.set(reason, (reasons.get(reason) ?? 0) + points));
  }
}

/** Throws for data whose meaning is not what this module assumes. @param {Data[]} data */
function check(data) {
  const kinds = new Set(data.map((one) => `${one.dataPointType} ${one.isMonotonic ?? false}`));
  if (kinds.size > 1) throw new Unusable("several_kinds");
  const [{ dataPointType, isMonotonic }] = data;
  if (dataPointType === GAUGE) return;
  const expected = dataPointType === SUM && !isMonotonic ? CUMULATIVE : DELTA;
  if (data.some((one) => one.aggregationTemporality !== expected)) throw new Unusable("temporality");
}

/** @param {Data[]} data @param {Of} of */
function isAdditive([{ dataPointType, isMonotonic }], of) {
  if (dataPointType === GAUGE) return false;
  return dataPointType === SUM ? Boolean(isMonotonic) : of === "sum" || of === "count";
}

/** An instrument's value, as in a view without attributes. @param {Data[]} data @param {Of} of */
function valueOf(data, of) {
  return joined(data[0].dataPointType, data.flatMap(({ dataPoints }) => dataPoints), of);
}

/** The attribute's value with the largest total. @param {Data[]} data @param {Of} of @param {string} key */
function categoryOf(data, of, key) {
  /** @type {Map<string, Point[]>} */
  const groups = new Map();
  for (const point of data.flatMap(({ dataPoints }) => dataPoints)) {
    const name = point.attributes[key];
    if (["string", "number", "boolean"].includes(typeof name)) {
      groups.set(String(name), [...(groups.get(String(name)) ?? []), point]);
    }
  }
  if (groups.size === 0) throw new Unusable("no_attribute");
  const [{ dataPointType }] = data;
  const values = [...groups].map(
    ([name, points]) => /** @type {const} */ ([name, joined(dataPointType, points, of)]),
  );
  const largest = Math.max(...values.map(([, value]) => value));
  if (!(largest > 0)) throw new Unusable("not_above_zero");
  const [first] = values.filter(([, value]) => value === largest).map(([name]) => name).sort();
  return first;
}

/** The value of points of one kind. @param {number} kind @param {Point[]} points @param {Of} of */
function joined(kind, points, of) {
  const values = points.map(({ value }) => value);
  if (kind === SUM) return sum(values);
  if (kind === GAUGE) {
    const later = (/** @type {Point} */ a, /** @type {Point} */ b) =>
      b.endTime[0] - a.endTime[0] || b.endTime[1] - a.endTime[1] || 0;
    return points.reduce((last, point) => (later(last, point) >= 0 ? point : last)).value;
  }
  const count = sum(values.map((value) => value.count));
  if (count === 0) throw new Unusable("empty");
  const total = sum(values.map((value) => value.sum ?? NaN));
  const found = {
    count,
    sum: total,
    mean: total / count,
    smallest: Math.min(...values.map((value) => value.min ?? NaN)),
    largest: Math.max(...values.map((value) => value.max ?? NaN)),
  }[of];
  if (!Number.isFinite(found)) throw new Unusable("not_recorded");
  return found;
}

/** @param {number[]} values */
function sum(values) {
  return values.reduce((total, value) => total + value, 0);
}
