// Alarms: what has moved from its baseline, and what a metric's history shows of that.

import {get} from "./api.js";
import {announce, h, setText} from "./dom.js";
import {moment, number, Scale, seconds, share, stretch} from "./format.js";
import {explained} from "./guide.js";
import {address} from "./place.js";
import {shapeOf} from "./shapes.js";

const BETWEEN = 10_000; // milliseconds between two looks
const MOST = 5; // that are listed of an alarm
const ARROWS = {up: "▲", down: "▼"};
const STATES = {learning: "waits for its baseline to be final", watching: "watching", unwatchable: "cannot watch"};

/** A value of an attribute in words: neither “other” nor “none” can be declared. */
const word = (value) => (value === null ? "none" : typeof value === "object" ? "other" : value);
const seriesOf = ({slice, category}) => [...Object.values(slice).map(word), category].filter(Boolean).join(" · ");

/** How all alarms stand, read again and again while somebody looks. */
export class Feed {
  constructor(changed) {
    Object.assign(this, {changed, alarms: [], promised: 0, problem: null, seen: null});
    setInterval(() => { if (document.visibilityState === "visible") this.read(); }, BETWEEN);
    this.read();
  }

  async read() {
    try {
      const {alarms, promised_per_year: promised} = await get("/v1/alarms");
      Object.assign(this, {alarms, promised, problem: null});
      this.#tell();
    } catch (error) {
      this.problem = error;
    }
    this.changed(this);
  }

  all() { return this.alarms; }

  /** Those of one metric. */
  of(name) { return this.alarms.filter(({metric}) => metric === name); }

  /** Say it to those who do not see it. */
  #tell() {
    const newest = this.alarms.flatMap(({raised}) => raised.map(({at}) => at)).sort().at(-1) ?? "";
    if (this.seen !== null && newest > this.seen) announce("An alarm was raised.");
    this.seen = newest;
  }
}

/** What was raised, in one line: when, which series, from where to where. */
function line(raised, scale) {
  const {direction, baseline, now, at, since} = raised;
  const digits = now.lower === null ? 2 : scale.digits(now.lower, now.upper);
  const told = [baseline.value, now.value].map((x) => (x === null ? "–" : scale.withUnit(x, digits))).join(" to ");
  const moved = `${seriesOf(raised) || raised.metric} moved from ${told}`;
  const title = `Raised at ${moment(seconds(at))} UTC. ${raised.promise}. The values since then have no bounds that promise anything.`;
  return h("li", {},
    h("span", {class: `arrow ${direction}`, "aria-label": direction === "up" ? "up" : "down"}, ARROWS[direction]), " ", explained("alarms", {title}, stretch(seconds(since), seconds(at))), ` · ${moved}`);
}

/** Where an alarm stands, in words. */
function standing({state, until, reason, series, skipped}) {
  const most = Math.max(0, ...series.map(({evidence}) => evidence ?? 0));
  return [
    reason || STATES[state],
    until && `looked at everything until ${moment(seconds(until))} UTC`,
    state === "watching" && until && (most < 1 ? `the evidence is ${share(most)} of what an alarm needs` : "the last look raised an alarm"),
    skipped && `${skipped} panes had expired`,
  ].filter(Boolean).join(" · ");
}

export const section = () => h("section", {class: "alarms panel", "aria-label": "Alarms", hidden: true});
export const caption = "brown: from when a value has moved until an alarm said so; dotted: the estimate, and the alarm's baseline";

/** The panel of alarms: of all metrics, or of one. */
export class Panel {
  constructor(element, definitions) { Object.assign(this, {element, definitions, shown: ""}); }

  show(alarms, {promised, problem}) {
    const key = JSON.stringify([alarms, problem?.message]);
    if (key === this.shown) return;
    this.shown = key;
    this.element.hidden = !alarms.length;
    const together = !this.element.id || alarms.length < 2 ? "" : `All together: at most ${number(promised, promised < 10 ? 1 : 0)} false alarms a year expected.`;
    this.element.replaceChildren(h("h3", {}, explained("alarms", {}, "Alarms")), ...alarms.map((one) => this.#alarm(one)),
      h("p", {class: "note"}, problem ? `Not read again: ${problem.message}` : together));
  }

  #alarm(alarm) {
    const {metric, alarm: name, raised, promise, series} = alarm;
    const definition = this.definitions().find((one) => one.name === metric);
    const scale = new Scale(definition && shapeOf(definition).hasShares ? "frequency" : definition?.kind, alarm.unit, definition?.range);
    const count = series.reduce((sum, {alarms}) => sum + alarms, 0);
    const more = count - Math.min(raised.length, MOST);
    return h("div", {class: "alarm", "data-raised": raised.length > 0},
      h("p", {}, h("a", {href: address({metric, by: null})}, h("strong", {}, name)), ` ${metric}${alarm.by.length ? ` by ${alarm.by.join(", ")}` : ""} · ${count ? `raised ${count === 1 ? "once" : `${number(count)} times`}` : "not raised"}`),
      h("ul", {}, raised.slice(0, MOST).map((one) => line(one, scale))),
      more > 0 && h("details", {}, h("summary", {class: "note"}, `and ${number(more)} before`), h("ul", {}, raised.slice(MOST).map((one) => line(one, scale)))),
      h("p", {class: "note"}, `${standing(alarm)} · ${promise}`));
  }
}

/** What the history of a metric shows: {from, at} of each move, and the baseline of the whole metric. */
export function marks(alarms, label) {
  const isOfAll = ({slice, category}) => !Object.keys(slice).length && (category ?? "") === (label ?? "");
  const moves = alarms.flatMap(({raised}) => raised).map((one) => ({from: seconds(one.since), at: seconds(one.at)}));
  const baselines = alarms.flatMap(({series}) => series).filter(isOfAll).map(({baseline}) => baseline?.value).filter((x) => typeof x === "number");
  return {moves, baselines};
}
