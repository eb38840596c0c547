// Alarms: the episodes in which a metric has moved away from its baseline, and what its history and its card show of them.

import {get, keepReading} from "./api.js";
import {differenceScale} from "./change.js";
import {announce, h} from "./dom.js";
import {moment, number, Scale, seconds, share, sliceName, stretch} from "./format.js";
import {explained} from "./guide.js";
import {metricAddress} from "./place.js";
import {shapeOf} from "./shapes.js";

const BETWEEN = 10_000; // milliseconds between two looks
const MOST = 5; // episodes of an alarm that are listed
const QUIET = 5; // looks without an alarm, after which an episode is over
const AROUND = 3; // looks that are shown before and after an episode; more if the episode is longer
const STATES = {learning: "waits for its baseline to be final", watching: "watching", unwatchable: "cannot watch"};

const seriesOf = ({slice, category}) => [sliceName(slice), category].filter(Boolean).join(" · ");

/** Reads the states of all alarms, again and again while somebody looks. */
export class Feed {
  constructor(changed) {
    Object.assign(this, {changed, alarms: [], promised: 0, problem: null, seen: null});
    keepReading(this, BETWEEN);
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

  /** The alarms of a metric. */
  of(name) { return this.alarms.filter(({metric}) => metric === name); }

  /** Announce a new alarm to people who do not see the screen. */
  #tell() {
    const newest = this.alarms.flatMap(({raised}) => raised.map(({at}) => at)).sort().at(-1) ?? "";
    if (this.seen !== null && newest > this.seen) announce("An alarm was raised.");
    this.seen = newest;
  }
}

/** How far a value is from its baseline. */
const distance = ({now, baseline}) => Math.abs((now.value ?? baseline.value) - baseline.value);

/**
 * The episodes of an alarm, the newest first: moves of one series in one direction, with few looks between them. `peak` is the move that went farthest from the baseline.
 */
export function episodes({raised, every_seconds: every}) {
  const found = [];
  for (const one of raised.toSorted((a, b) => a.at.localeCompare(b.at))) {
    const [from, to] = [one.since, one.at].map(seconds);
    const last = found.findLast(({name, direction}) => name === seriesOf(one) && direction === one.direction);
    if (last && from <= last.to + QUIET * every) {
      Object.assign(last, {to: Math.max(to, last.to), count: last.count + 1, peak: distance(one) > distance(last.peak) ? one : last.peak});
    } else {
      found.push({name: seriesOf(one), direction: one.direction, from, to, count: 1, peak: one, every});
    }
  }
  return found.reverse();
}

/** The episode whose peak is farthest from its baseline. */
const largestOf = (all) => all.toSorted((a, b) => distance(b.peak) - distance(a.peak))[0];

/** The address of an episode in the chart of its metric. */
function placeOf({from, to, every}, metric) {
  const around = Math.max(to - from, AROUND * every);
  const [begin, end] = [from - around, to + around].map((at) => new Date(at * 1000).toISOString().replace(".000Z", "Z"));
  return metricAddress(metric, {window: null, from: begin, to: end});
}

/** An episode as a row: when it was, how far it went, the values before and after, and a link to its place in the chart. */
function row(episode, metric, scale, points, isLargest) {
  const {name, peak: {baseline, now, promise}, count, from, to} = episode;
  const digits = now.lower === null ? 2 : scale.digits(now.lower, now.upper);
  const [before, after] = [baseline.value, now.value].map((x) => (x === null ? "–" : scale.withUnit(x, digits)));
  const size = now.value - baseline.value;
  const amount = now.value === null ? "" : `peak ${size > 0 ? "+" : ""}${points.withUnit(size, digits)}`;
  const title = `${count === 1 ? "Raised once" : `Raised ${number(count)} times in a row`}, until ${moment(to)} UTC. ${promise}. The values since then have no bounds that promise anything.`;
  return h("tr", {}, h("th", {scope: "row"}, explained("alarms", {title}, stretch(from, to)), isLargest && h("span", {class: "new"}, "largest")), h("td", {}, name), h("td", {}, amount), h("td", {}, `from ${before} to ${after}`),
    h("td", {}, h("a", {href: placeOf(episode, metric), onclick: () => scrollTo(0, 0), "aria-label": `show ${stretch(from, to)} in the chart`}, "show")));
}

/** The state of an alarm, in words. */
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
export const caption = "shaded: a value has moved; dotted: the estimate, and the alarm's baseline";

/** A metric's episode that still goes on, else its largest episode, and the number of its episodes; null if it has none. */
export function mainEpisode(alarms) {
  const all = alarms.flatMap((alarm) => episodes(alarm).map((one) => ({...one, alarm})));
  const open = all.find(({to, every, alarm}) => to + QUIET * every >= seconds(alarm.until));
  return all.length ? {...(open ?? largestOf(all)), isOpen: Boolean(open), total: all.length} : null;
}

/** What a metric's card says about the metric's alarms. */
export function flagOf(alarms) {
  const episode = mainEpisode(alarms);
  if (!episode) return null;
  const {from, to, alarm, isOpen, total} = episode;
  const text = isOpen ? `alarm since ${moment(from)}` : `${total > 1 ? "largest alarm" : "alarm"} ${stretch(from, to)}`;
  return h("a", {class: "flag", href: placeOf(episode, alarm.metric), title: `${number(total)} in all. ${alarm.alarm}: ${alarm.promise}`}, text);
}

/** The panel of a metric's alarms. */
export class Panel {
  constructor(element, definitions) { Object.assign(this, {element, definitions, shown: ""}); }

  show(alarms, {promised, problem}) {
    const key = JSON.stringify([alarms, problem?.message]);
    if (key === this.shown) return;
    this.shown = key;
    this.element.hidden = !alarms.length;
    this.element.replaceChildren(h("h3", {}, explained("alarms", {}, "What has moved")), ...alarms.map((one) => this.#alarm(one)),
      h("p", {class: "note"}, problem ? `Not read again: ${problem.message}` : promised ? `All alarms together: at most ${number(promised, promised < 10 ? 1 : 0)} false alarms a year expected.` : ""));
  }

  #alarm(alarm) {
    const {metric, alarm: name, promise, by} = alarm;
    const definition = this.definitions().find((one) => one.name === metric);
    const kind = definition && shapeOf(definition).hasShares ? "frequency" : definition?.kind;
    const [scale, points] = [new Scale(kind, alarm.unit, definition?.range), differenceScale(kind, alarm.unit, definition?.range)];
    const found = episodes(alarm);
    const largest = found.length > 1 ? largestOf(found) : null;
    const all = largest ? [largest, ...found.filter((one) => one !== largest)] : found;
    const list = (some, label) => h("div", {class: "table", tabindex: "0", role: "region", "aria-label": `${label} of ${name}`}, h("table", {class: "episodes"}, h("tbody", {}, some.map((one) => row(one, metric, scale, points, one === largest)))));
    return h("div", {class: "alarm"},
      h("h4", {}, name, h("small", {}, by.length ? ` by ${by.join(", ")}` : "", all.length ? "" : " · nothing has moved")),
      all.length > 0 && list(all.slice(0, MOST), "Episodes"),
      all.length > MOST && h("details", {}, h("summary", {class: "note"}, `${number(all.length - MOST)} earlier`), list(all.slice(MOST), "Earlier episodes")),
      h("p", {class: "note"}, `${standing(alarm)} · ${promise}`));
  }
}

/** What a metric's history shows of its alarms: {from, to} of each episode, and the baseline of the whole metric. */
export function marks(alarms, label) {
  const isOfAll = ({slice, category}) => !Object.keys(slice).length && (category ?? "") === (label ?? "");
  const moves = alarms.flatMap((alarm) => episodes({...alarm, raised: alarm.raised.filter(isOfAll)}));
  const baselines = alarms.flatMap(({series}) => series).filter(isOfAll).map(({baseline}) => baseline?.value).filter((x) => typeof x === "number");
  return {moves, baselines};
}
