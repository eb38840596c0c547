// What operators look at: rate, lag, partitions and dead letters, from the server's status.

import {h, setText, svg} from "./dom.js";
import {count, duration, moment, number, rate, seconds, since, whole} from "./format.js";
import {problemNotice} from "./parts.js";

const REMEMBERED = 120; // samples of the rate, one a second
const REASONS = 3;
const AWAY = "Redis does not answer";

const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);

function tile(name, ...more) {
  const value = h("dd", {class: "big"}, "–");
  const note = h("dd", {class: "note"});
  return {value, note, element: h("div", {class: "tile"}, h("dt", {}, name), value, note, ...more)};
}

const isAway = ({redis}) => redis.startsWith(AWAY);
const redisFailure = (status) => (isAway(status) ? AWAY : "Redis cannot be read");

/** Whether new reports are being counted, so that the shown numbers move: {counting: true, false or null, text}. */
export function liveness(status) {
  if (status.redis !== "ok") return {counting: null, text: redisFailure(status)};
  if (status.counting) return {counting: true, text: Object.values(status.metrics).some((one) => one.reports_per_second !== 0) ? "Live" : "Idle"};
  const last = seconds(status.silent_since);
  return {counting: false, text: last === null ? "No worker has counted yet" : `No worker has counted since ${since(last)}`};
}

export class Operations {
  constructor(element, alerts) {
    Object.assign(this, {element, alerts, rates: [], onLive: () => {}, problem: null, action: null, status: null, shown: "", updated: null});
    this.line = svg("polyline", {class: "spark-line"});
    this.area = svg("polygon", {class: "spark-area"});
    const spark = svg("svg", {class: "spark", viewBox: "0 0 100 30", preserveAspectRatio: "none", "aria-hidden": "true"}, this.area, this.line);
    this.columns = h("div", {class: "columns", "aria-hidden": "true"});
    this.reasons = h("dd", {class: "reasons"});
    this.tiles = {
      rate: tile("Reports per second", h("dd", {class: "drawing", "aria-hidden": "true"}, spark)),
      counted: tile("Reports counted"),
      lag: tile("Lag", h("dd", {class: "drawing", "aria-hidden": "true"}, this.columns)),
      dead: tile("Dead letters", this.reasons),
      time: tile("Event time reached"),
    };
    element.append(h("dl", {}, Object.values(this.tiles).map((one) => one.element)));
    setInterval(() => this.#ages(), 1000);
  }

  /** Take the status object of /v1/status. */
  show(status) {
    if (status.redis !== "ok") { // the last numbers stay on the page, but nobody knows how old they are
      const partitions = (this.status?.partitions ?? []).map((one) => ({...one, lag: null}));
      this.status = {...status, partitions};
      this.#partitions(partitions, redisFailure(status));
      this.onLive(liveness(status));
      return this.#alert();
    }
    this.status = status;
    const metrics = Object.values(status.metrics);
    const rates = metrics.map((one) => one.reports_per_second).filter((one) => one !== null && one !== undefined);
    const total = rates.length ? sum(rates) : null;
    this.#spark(total);
    setText(this.tiles.rate.value, rate(total));
    const outcomes = metrics.map((one) => one.outcomes);
    const counted = sum(outcomes.map((one) => one.accepted ?? 0));
    setText(this.tiles.counted.value, count(counted));
    this.tiles.counted.value.title = whole(counted);
    setText(this.tiles.counted.note, `${count(sum(outcomes.map((one) => one.duplicate ?? 0)))} duplicates, counted once`);
    this.#partitions(status.partitions, status.kafka);
    this.#deadLetters(status.deadletters, counted);
    this.onLive({...liveness(status), trouble: this.#trouble()});
    const times = metrics.map((one) => seconds(one.event_time)).filter((at) => at !== null);
    setText(this.tiles.time.value, times.length ? moment(Math.floor(Math.max(...times) / 60) * 60) : "–");
    const updates = metrics.map((one) => seconds(one.updated)).filter((at) => at !== null);
    this.updated = updates.length ? Math.max(...updates) : null;
    this.#ages();
    this.#alert();
  }

  /** Let a button show and hide this panel, because usually nobody has to look at it. */
  foldInto(button) {
    button.addEventListener("click", () => {
      this.element.hidden = !this.element.hidden;
      button.setAttribute("aria-expanded", String(!this.element.hidden));
    });
  }

  /** What is wrong although reports are counted, in a few words; empty if nothing is. */
  #trouble() {
    const {lag, dead} = this.tiles;
    return [lag.element.dataset.state && lag.trouble, dead.element.dataset.state && `${dead.value.textContent} dead letters`].filter(Boolean).join(" · ");
  }

  /** Show why the connection is lost, and a button that may help; null once it is back. */
  disconnected(problem, action = null) {
    Object.assign(this, {problem, action});
    this.#alert();
  }

  #partitions(partitions, why) {
    const {lag} = this.tiles;
    const halted = partitions.filter((one) => one.halted);
    const gap = sum(partitions.map((one) => one.gap ?? 0));
    const unknown = partitions.filter((one) => one.lag === null);
    const silent = partitions.filter((one) => !one.counting && one.committed !== null);
    setText(lag.value, unknown.length || !partitions.length ? "–" : count(sum(partitions.map((one) => one.lag))));
    const parts = [`${partitions.length} ${partitions.length === 1 ? "partition" : "partitions"}`];
    if (halted.length) parts.push(`${halted.length} halted`);
    if (gap) parts.push(`${count(gap)} offsets lost`);
    if (silent.length) parts.push(`${silent.length} not counted`);
    const what = unknown.length ? `unknown: ${why === "ok" ? "a partition cannot be read" : why}` : "messages";
    lag.trouble = parts.slice(1).join(" · ");
    setText(lag.note, partitions.length ? `${what} · ${parts.join(" · ")}` : "no worker yet: start dither aggregate");
    lag.element.title = partitions.map((one) => `partition ${one.partition}: ${one.lag === null ? "an unknown number of" : whole(one.lag)} messages behind${one.halted ? ", halted" : ""}${one.counting ? "" : ", not counted now"}`).join("\n");
    lag.element.dataset.state = halted.length || silent.length ? "danger" : gap || unknown.length ? "warning" : "";
    const most = Math.max(20, ...partitions.map((one) => one.lag ?? 0));
    this.columns.replaceChildren(...partitions.filter((one) => one.lag !== null).map((one) => {
      const column = h("i", {class: one.halted ? "halted" : null});
      column.style.height = `${Math.max(10, (100 * one.lag) / most)}%`;
      return column;
    }));
  }

  #deadLetters(reasons, counted) {
    const {dead} = this.tiles;
    const known = Object.entries(reasons).filter(([, n]) => n > 0).sort((a, b) => b[1] - a[1]);
    const total = sum(known.map(([, n]) => n));
    setText(dead.value, count(total));
    dead.element.dataset.state = total > Math.max(10, counted / 100) ? "warning" : "";
    setText(dead.note, total ? "" : "every report was counted");
    const shown = known.slice(0, REASONS).map(([reason, n]) => `${count(n)} ${reason.replaceAll("_", " ")}`);
    if (known.length > REASONS) shown.push(`${known.length - REASONS} more reasons`);
    setText(this.reasons, shown.join(" · "));
    this.reasons.title = known.map(([reason, n]) => `${reason}: ${whole(n)}`).join("\n");
  }

  #spark(total) {
    if (total === null) return;
    this.rates.push(total);
    if (this.rates.length > REMEMBERED) this.rates.shift();
    const most = Math.max(1, ...this.rates);
    const step = 100 / Math.max(1, this.rates.length - 1);
    const points = this.rates.map((one, i) => `${(step * i).toFixed(2)},${(29 - (27 * one) / most).toFixed(1)}`);
    this.line.setAttribute("points", points.join(" "));
    this.area.setAttribute("points", ["0,30", ...points, "100,30"].join(" "));
  }

  #ages() {
    const age = this.updated === null ? null : Math.max(0, Date.now() / 1000 - this.updated);
    setText(this.tiles.time.note, age === null ? "UTC" : `UTC · last report reached Kafka ${age < 2 ? "just now" : `${duration(Math.floor(age))} ago`}`);
  }

  #alert() {
    const found = [];
    if (this.problem) found.push([this.problem.message, this.problem.remedy, this.action]);
    for (const one of this.status?.partitions.filter((partition) => partition.halted) ?? []) {
      found.push([`Partition ${number(one.partition)} is halted: it is not counted until somebody fixes the cause.`, "The reason is in the log of its worker; aggregate.on_gap sets what happens at a gap."]);
    }
    const live = this.status && liveness(this.status);
    if (live?.counting === false) found.push([`${live.text}.`, "Reports wait in Kafka: start “dither aggregate”, or see its log for the reason."]);
    if (this.status && this.status.redis !== "ok") found.push([`${this.status.redis}.`, isAway(this.status) ? "Committed counts are safe; counting continues when Redis answers." : ""]);
    for (const one of this.status?.missing ?? []) found.push(["A part of what was counted is missing: estimates that need it cannot be answered.", one]);
    const key = JSON.stringify(found);
    if (key === this.shown) return;
    this.shown = key;
    this.alerts.replaceChildren(...found.map(([message, remedy, action]) => problemNotice({message, remedy}, action)));
  }
}
