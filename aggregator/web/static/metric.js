// What the page knows about a metric in the shown window, and the requests that keep this up to date.

import {get, metricPath, putPolicy} from "./api.js";
import {DAY, quantileName, Scale, seconds} from "./format.js";
import {amountOf, changeIn} from "./change.js";
import {isTrusted} from "./parts.js";
import {address, isEverything, isSameWindow, windowQuery} from "./place.js";
import {shapeOf} from "./shapes.js";
import {sharesOf} from "./shares.js";

const LEAST_BETWEEN = {answer: 1_500, series: 300_000, slices: 4_000, change: 300_000}; // milliseconds
const LEAST_MOVING = {series: 4_000, change: 30_000}; // milliseconds while event time advances
const PART = 0.25; // of a step of the history: event time that advances by less does not count
const PATIENCE = 4; // a request is repeated after this many times its own duration at the earliest,
const LONGEST_BETWEEN = 10_000; // or after so many milliseconds
const STEPS = [1, 60, 300, 900, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, DAY, 2 * DAY, 7 * DAY, 14 * DAY, 28 * DAY, 91 * DAY, 364 * DAY];
const SLICES = 20; // slices that are read at first: those with most reports
const PROBES = [28 * DAY, DAY, 3600, 60];
const LENIENT = 0.75; // a round step may give a third more points than are wanted
const AMPLE = 2; // a step should have this multiple of the metric's minimum of reports on average
const ENOUGH = 6; // so many points of a probe tell the length of the whole history

/** Runs a task on request: one run at a time, not too often for its cost, and only while somebody can see the result. */
export class Refresher {
  constructor(least, isSeen, task, moving = least) { Object.assign(this, {least, isSeen, task, moving, running: false, wanted: false, urgent: false, next: 0, soonest: 0, timer: 0}); }
  soon() {
    this.wanted = true;
    if (this.running || !this.isSeen()) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#run(), Math.max(0, this.next - performance.now()));
  }
  /** Run a requested task as soon as its cost allows. */
  hasten() {
    this.next = Math.min(this.next, this.soonest);
    this.resume();
  }
  /** Run the task at once; the caller has aborted a request that is still running. */
  now() { [this.next, this.urgent] = [0, true]; this.soon(); }
  stop() { clearTimeout(this.timer); this.wanted = false; }
  async #run() {
    if (!this.isSeen()) return;
    const began = performance.now();
    [this.running, this.wanted, this.urgent] = [true, false, false];
    await this.task();
    this.running = false;
    const ended = performance.now();
    const pause = Math.min(LONGEST_BETWEEN, PATIENCE * (ended - began));
    this.soonest = ended + Math.max(this.moving, pause);
    this.next = this.urgent ? 0 : ended + Math.max(this.least, pause);
    this.resume();
  }
  resume() { if (this.wanted) this.soon(); }
}

/** Whether the server compares a metric with the period before. */
export const isComparable = (definition) => shapeOf(definition).hasHistory && (definition.categories !== "open" || Boolean(definition.watch?.length));

/** A metric for one view of it; `changed()` is called whenever something here is new. */
export class Metric {
  /**
   * definition: as /v1/metrics/{name} gives it; place: see place.js; top: how many categories or
   * coordinates; steps: about how many points the history has; bins: how many a histogram of each
   * point has, of a distribution; changed: called whenever something is new; isOnScreen: until
   * onScreen() says otherwise; isDetailed: whether it is also read in slices, and beside something else.
   */
  constructor(definition, place, {top, steps, changed, bins = null, isOnScreen = true, isDetailed = false}) {
    Object.assign(this, {definition, place, top, steps, changed, bins, isDetailed, live: null, answer: null, points: [], beside: null, edges: null, labels: null, step: null, chosen: null, asked: [], rate: null, outcomes: {}, reached: null, slices: null, slicesTop: SLICES, comparisons: []});
    this.shares = sharesOf(definition);
    this.scale = new Scale(definition.kind, definition.unit, definition.range);
    this.problems = {answer: null, series: null, slices: null, change: null, policy: null};
    this.isOnScreen = isOnScreen;
    const isSeen = () => this.isOnScreen && document.visibilityState === "visible";
    this.seen = () => { for (const one of Object.values(this.refresh)) one.resume(); };
    document.addEventListener("visibilitychange", this.seen);
    this.refresh = {
      answer: new Refresher(LEAST_BETWEEN.answer, isSeen, () => this.#attempt("answer", () => this.#readAnswer())),
      series: new Refresher(LEAST_BETWEEN.series, isSeen, () => this.#attempt("series", () => this.#readSeries()), LEAST_MOVING.series),
      slices: new Refresher(LEAST_BETWEEN.slices, isSeen, () => this.#attempt("slices", () => this.#readSlices())),
      change: new Refresher(LEAST_BETWEEN.change, isSeen, () => this.#attempt("change", () => this.#readChange()), LEAST_MOVING.change),
    };
    this.controller = new AbortController();
    if (isDetailed && place.label) this.#ask(place.label);
    this.again();
  }

  get name() { return this.definition.name; }
  get title() { return this.definition.title || this.definition.name; }
  get hasHistory() { return shapeOf(this.definition).hasHistory; }
  /** The attributes by which slices are shown: those in the address that the metric has, or at first the metric's first attribute. */
  get by() { return this.isDetailed ? (this.place.by ?? this.definition.by?.[0] ?? "").split(",").filter((name) => this.definition.by?.includes(name)) : []; }
  /** The slice that is shown, as ATTRIBUTE=VALUE; empty for all devices. */
  get where() { return this.isDetailed && this.definition.by ? (this.place.where ?? "").split("\n").filter(Boolean) : []; }
  /** The length of the requested window in seconds; null if it is not bounded. */
  get span() {
    const {window, from, to} = this.place;
    if (window) return Number.parseInt(window, 10) * (window.endsWith("d") ? DAY : 3600);
    return from && to ? seconds(to) - seconds(from) : null;
  }
  /** Whether an answer is about a longer window than requested, beyond whole panes, as the panes of slices may be longer. */
  isWider({from, to}) { return this.span !== null && seconds(to) - seconds(from) > this.span + 2 * this.definition.pane_seconds; }
  get isReady() { return this.answer !== null && !["not_ready", "too_few_reports", "expired"].includes(this.answer.status); }

  /** Set whether the view can be seen; once it can, missed requests are made up for. */
  onScreen(isOnScreen) {
    this.isOnScreen = isOnScreen;
    this.seen();
  }

  close() {
    document.removeEventListener("visibilitychange", this.seen);
    this.controller.abort();
    for (const one of Object.values(this.refresh)) one.stop();
  }

  /** Read everything again, because the window, the weights or the question has changed. */
  again() {
    this.controller.abort();
    this.controller = new AbortController();
    const {change, ...first} = this.refresh;
    [change.next, change.urgent] = [0, true]; // it waits for the number, even if somebody asks for it earlier
    for (const one of Object.values(first)) one.now();
  }

  show(place) {
    const isSame = isSameWindow(place, this.place);
    Object.assign(this, {place, slices: null});
    const isAsked = this.isDetailed && place.label && place.label !== this.chosen && this.#ask(place.label);
    if (isSame && !isAsked) return this.readSlices();
    Object.assign(this, {points: [], beside: null, step: null, comparisons: []});
    this.again();
  }

  /** Read the slices again, by other attributes or more of them. */
  readSlices(top = SLICES) {
    this.slicesTop = top;
    this.changed(this);
    this.refresh.slices.now();
  }

  /** Take a new answer of the running total. */
  take(answer) {
    this.live = answer;
    if (this.#liveIsAnswer()) this.#put({answer});
    else this.refresh.answer.soon();
    this.refresh.series.soon();
    if (isTrusted(this.definition)) this.refresh.series.hasten(); // a release is a new step, later than its reports
    this.refresh.slices.soon();
    this.refresh.change.soon();
  }

  /** Take the metric's part of the server's status. */
  takeStatus({reports_per_second: rate, outcomes, event_time: reached = null}) {
    Object.assign(this, {rate, outcomes, reached});
    const at = seconds(reached);
    if (this.problems.series || !this.points.length || at - this.drawnTo > PART * this.step) this.refresh.series.hasten();
    if (at - this.comparedTo > this.definition.pane_seconds) this.refresh.change.hasten();
    this.changed(this);
  }

  choose(label) {
    if (this.isDetailed) history.replaceState(null, "", address({label}));
    this.#put({chosen: label});
  }

  /** Also ask for a string or a quantile that is not shown yet. */
  ask(label) {
    if (this.#ask(label)) this.again();
    this.choose(label);
  }

  /** Put a number in front; return whether it has to be read first. */
  #ask(label) {
    const isMissing = (this.definition.categories === "open" || this.definition.quantiles) && !this.entries().some((entry) => entry.label === label);
    if (isMissing) this.asked = [...new Set([...this.asked, label])];
    const wasShare = this.#leadsShare();
    this.chosen = label;
    return Boolean(isMissing) || this.#leadsShare() !== wasShare;
  }

  async setPolicy(policy) {
    this.problems.policy = null;
    try {
      this.takePolicy((await putPolicy(this.name, policy)).policy);
    } catch (error) {
      this.problems.policy = error;
      this.changed(this);
      throw error;
    }
  }

  takePolicy(policy) {
    this.definition = {...this.definition, policy};
    this.changed(this);
    this.again();
  }

  /** The numbers of the answer as [{label, name, value, lower, upper}]; a single number has an empty label. */
  entries() {
    if (!this.answer) return [];
    const {value, lower, upper, categories, coordinates, quantiles} = this.answer;
    const labels = categories ?? coordinates ?? quantiles;
    if (!labels) return [{label: "", name: "", value, lower, upper}];
    return labels.map((label, i) => ({label, name: quantiles ? quantileName(label) : label, value: value?.[i] ?? null, lower: lower?.[i] ?? null, upper: upper?.[i] ?? null}));
  }

  /** The definition's shares among, in the form of entries(). */
  shareEntries() {
    const {value, lower, upper} = this.answer?.shares_among ?? {};
    return value ? this.shares.names.map((share, i) => ({...share, value: value[i], lower: lower[i], upper: upper[i]})) : [];
  }

  /** The number in front: the chosen number, else the first share, else the first number. */
  leading() {
    const entries = [...this.shareEntries(), ...this.entries()];
    return entries.find((entry) => entry.label === this.chosen) ?? entries[0] ?? null;
  }

  /** The numbers of the answer, each with what is certain about its change. */
  changedEntries() {
    return this.entries().map((entry) => {
      const found = this.change(entry.label);
      return found?.isCertain ? {...entry, change: amountOf(found, this)} : entry;
    });
  }

  /** How a number differs from the period before; null if unknown. */
  change(label = this.leading()?.label) { return this.comparisons.map((one) => changeIn(one, label)).find(Boolean) ?? null; }

  /** The change to show: that of the number in front if it is certain, else the surest change of another number, with its name. */
  toldChange() {
    const leading = this.change();
    const others = leading?.isCertain ? [] : [...this.shareEntries(), ...this.entries()].map(({label, name}) => ({...this.change(label), name}));
    return others.filter(({isCertain}) => isCertain).sort((a, b) => a.p - b.p)[0] ?? leading;
  }

  /** The value over the whole window, with which the history is compared; null for releases, each of which is about one step. */
  reference() { return isTrusted(this.definition) ? null : this.leading().value; }

  /** The index of the number in front in the history; null for a single number, undefined if the history lacks it. */
  historyIndex() {
    if (!this.labels) return null;
    const index = this.labels.indexOf(this.leading()?.label);
    return index < 0 ? undefined : index;
  }

  /** Whether a share is in front; history and slices are then about shares. */
  #leadsShare() {
    const {answer, chosen, shares: {names}} = this;
    return names.length > 0 && (answer === null || Boolean(answer.shares_among)) && (chosen === null || names.some(({label}) => label === chosen));
  }

  /** The labels for which history and slices are requested: all shares if a share is in front; null for the labels of the answer. */
  #labels() { return this.#leadsShare() ? this.definition.shares : this.#categories(); }

  #categories() {
    const {categories, watch} = this.definition;
    return categories === "open" && this.asked.length ? [...new Set([...(watch ?? []), ...this.asked])] : null;
  }

  /** Whether the running total contains the answer that this view asks for. */
  #liveIsAnswer() {
    const {live} = this;
    if (!this.hasHistory) return true;
    const suffices = !live.left_out || (live.categories ?? live.coordinates ?? live.quantiles).length >= this.top;
    const isInForce = isTrusted(this.definition) || live.policy === this.definition.policy; // a release keeps its weights
    return isEverything(this.place) && !this.where.length && suffices && !this.asked.length && isInForce;
  }

  /** Take changed fields; read history and slices again if they have to be about other numbers now. */
  #put(changes) {
    const wasShare = this.#leadsShare();
    Object.assign(this, changes);
    if (this.#leadsShare() !== wasShare) {
      Object.assign(this, {points: [], beside: null, step: null, slices: null});
      this.refresh.series.now();
      this.refresh.slices.now();
    }
    this.changed(this);
  }

  async #attempt(what, task) {
    const {controller} = this;
    try {
      await task();
      this.problems[what] = null;
    } catch (error) {
      if (controller.signal.aborted) return;
      this.problems[what] = error;
    }
    this.changed(this);
  }

  #query(category = this.#labels()) {
    if (!this.hasHistory) return {};
    const quantile = this.definition.quantiles && this.asked.length ? [...new Set([...this.definition.quantiles, ...this.asked].map(Number))] : null;
    return {...windowQuery(this.place), where: this.where, category, quantile, top: category ? null : this.top};
  }

  /** The path and the parameters of the table of the history ("series") or of the window ("estimate"). */
  tableOf(what) {
    const step = what === "series" && this.step ? `${this.step}s` : null;
    return [`${metricPath(this.name)}/${what}`, {...this.#query(), step, format: "csv"}];
  }

  async #readAnswer() {
    const answer = await get(`${metricPath(this.name)}/estimate`, this.#query(this.#categories()), {signal: this.controller.signal});
    this.#put({answer});
    this.refresh.change.soon();
  }

  /** Read all numbers of the `top` slices with most reports, at about `steps` steps. */
  slicesOverTime(top, steps) {
    const pane = this.definition.pane_seconds;
    const step = pane * Math.max(1, Math.ceil(spanOf(this.points) / steps / pane));
    const query = {from: this.points[0].from, to: this.points.at(-1).to, by: this.by, category: this.#categories() ?? this.labelsOfCategories(), top, step: `${step}s`};
    return get(`${metricPath(this.name)}/series`, query, {signal: this.controller.signal});
  }

  /** The category in front, if the metric lists its categories: only this category is requested. */
  labelsOfCategories() { return Array.isArray(this.definition.categories) ? [this.leading().label] : null; }

  async #readSlices() {
    const {by, place} = this;
    if (!by.length) return;
    // all categories, although one is shown, because it may be chosen after looking
    const query = {...windowQuery(place), by, category: this.#labels(), top: this.slicesTop};
    const found = await get(`${metricPath(this.name)}/estimate`, query, {signal: this.controller.signal});
    if (place === this.place) this.slices = found;
  }

  /** Read the change against the period before; only offered periods have one, because they share the probability of error. */
  async #readChange() {
    const {place} = this;
    if (!isComparable(this.definition) || place.from || place.to || this.where.length) return;
    this.comparedTo = seconds(this.reached);
    const {comparisons} = await get(`${metricPath(this.name)}/change`, {period: place.window}, {signal: this.controller.signal, priority: "low"});
    if (place === this.place) this.comparisons = comparisons;
  }

  async #readSeries() {
    if (!this.hasHistory || !this.steps) return; // it has a single answer, or shows a single one
    const {place} = this;
    this.drawnTo = seconds(this.reached);
    const first = this.#hasOutgrown() ? await this.#firstStep() : this.step ?? (await this.#firstStep());
    if (place !== this.place) return;
    const found = await this.#readPoints(first);
    const step = Math.max(this.#fittingStep(spanOf(found.points)), this.#tellingStep(found));
    const grew = found.points.length > 1 && step > found.step_seconds;
    const shown = grew ? await this.#readPoints(step) : found;
    if (place !== this.place) return;
    this.step = shown.step_seconds;
    this.#putSeries(shown);
    if (this.isDetailed) await this.#readBeside(place);
  }

  /** Whether event time has advanced so far that the present step may make more points than the server allows. */
  #hasOutgrown() {
    const {points, place, reached} = this;
    return points.length > 0 && isEverything(place) && reached !== null && seconds(reached) - seconds(points[0].from) > 2 * Math.max(this.steps * this.step, spanOf(points));
  }

  /** Read the line in the background of the history: all devices if a slice is shown, else the period before. */
  async #readBeside(place) {
    const {points, step} = this;
    const span = spanOf(points);
    const isPeriod = !this.where.length;
    if (!points.length || isTrusted(this.definition) || (isPeriod && isEverything(place))) return;
    const shift = isPeriod ? span : 0;
    const [from, to] = [points[0].from, points.at(-1).to].map((at) => new Date(1000 * (seconds(at) - shift)).toISOString());
    const key = [from, to, step, this.asked.length, isPeriod ? "" : this.answer?.reports].join();
    if (this.beside?.key === key) return;
    const found = await this.#readPoints(step, {from, to, window: null, where: []});
    if (place === this.place) this.beside = {key, shift, text: isPeriod ? "the period before" : "all devices", points: found.points, labels: found.categories ?? found.coordinates ?? found.quantiles ?? null};
  }

  /** The line in the background as steps {from, to, value} of the number in front. */
  besideSteps() {
    if (!this.beside) return [];
    const {points, labels, shift} = this.beside;
    const index = labels?.indexOf(this.leading()?.label);
    return points.map((point) => ({from: seconds(point.from) + shift, to: seconds(point.to) + shift, value: point.status === "too_few_reports" ? null : (labels ? point.value?.[index] : point.value) ?? null}));
  }

  /** The first step, which follows from the window's length; if that is unknown, a few coarse steps are read to learn it. */
  async #firstStep() {
    if (isTrusted(this.definition)) return this.definition.pane_seconds;
    if (this.span !== null) return this.#fittingStep(this.span);
    for (const probe of PROBES) {
      const {points, step_seconds: step} = await this.#readPoints(probe);
      if (points.length >= ENOUGH || step > probe || probe === PROBES.at(-1)) return this.#fittingStep(spanOf(points));
    }
    return null;
  }

  /** A longer step, at which most points have enough reports, if most points have too few at this step; else 0. */
  #tellingStep({points, step_seconds: step}) {
    const few = points.filter(({status}) => status === "too_few_reports").length;
    const reports = points.reduce((sum, one) => sum + one.reports, 0);
    if (isTrusted(this.definition) || 2 * few <= points.length || !reports) return 0;
    const enough = Math.min(points.length, (AMPLE * this.definition.minimum_reports * points.length) / reports);
    return this.#fittingStep(enough * step * this.steps);
  }

  /** The round step, in seconds and in whole panes, that makes about as many points as are wanted. */
  #fittingStep(span) {
    const {pane_seconds: pane} = this.definition;
    if (isTrusted(this.definition)) return pane; // releases cannot be added
    const exact = span / this.steps;
    const round = STEPS.find((step) => step >= LENIENT * exact) ?? exact;
    const paneMs = Math.round(1000 * pane); // 86 times 0.7 is 60.199999999999996
    return (Math.max(1, Math.ceil((1000 * round) / paneMs)) * paneMs) / 1000;
  }

  async #readPoints(step, changes = {}) {
    const ask = (own) => get(`${metricPath(this.name)}/series`, {...this.#query(), ...own, bins: this.bins, ...changes}, {signal: this.controller.signal, priority: "low"}); // numbers first, and what a person asks for
    try {
      return await ask({step: `${step}s`});
    } catch (error) {
      if (error.status !== 400) throw error;
      return ask({}); // too many points for the server, which knows how many it takes
    }
  }

  #putSeries({points, edges, categories, coordinates, quantiles}) {
    Object.assign(this, {points, edges, labels: categories ?? coordinates ?? quantiles ?? null});
  }
}

const spanOf = (points) => (points.length ? seconds(points.at(-1).to) - seconds(points[0].from) : 0);
