// A metric by attributes of devices: a menu of attributes, and a dot with its interval for each slice, sorted by value.

import {announce, h, setText, svg} from "./dom.js";
import {attributeValue, certainty, count, share, sliceName, whole} from "./format.js";
import {columns, History, isNearlyAll, verticalRange} from "./history.js";
import {widerText, windowText} from "./parts.js";
import {address} from "./place.js";

const ALL = 10_000; // the most slices that a request may ask for
const NOTHING = "nothing";
const MOST_CHARTS = 9;
const STEPS_OVER_TIME = 12;
const percent = (x) => `${(100 * x).toFixed(2)}%`;

/** The address of the metric's page for only the devices of a slice. */
const pageOf = (slice) => address({where: Object.entries(slice).map(([name, value]) => `${name}=${attributeValue(value)}`).join("\n")});

/** The value and the bounds of a slice; if it has several numbers, those at an index. */
function numbersOf({value, lower, upper}, place) {
  const one = (x) => (Array.isArray(x) ? x[place] ?? null : x);
  return {value: one(value), lower: one(lower), upper: one(upper)};
}

/** A row of the chart. Its elements are reused and moved, so that a changing value slides. */
class Row {
  constructor() {
    const line = (from, to) => svg("line", {class: "whisker", y1: from, y2: to});
    [this.whisker, this.low, this.high] = [line("50%", "50%"), line("20%", "80%"), line("20%", "80%")];
    this.point = svg("circle", {class: "point", cy: "50%", r: "0.25rem"});
    this.name = h("a", {class: "name"});
    [this.number, this.about] = ["number", "about"].map((name) => h("span", {class: name}));
    const drawing = svg("svg", {class: "track", "aria-hidden": "true"}, this.whisker, this.low, this.high, this.point);
    this.element = h("li", {class: "slice-row"}, this.name, drawing, this.number, this.about);
  }
  show({name, slice, value, lower, upper, reports, isVague}, place, scale) {
    const known = value !== null;
    const digits = scale.digits(lower, upper);
    setText(this.name, name);
    this.name.title = `Show ${name} alone`;
    this.name.setAttribute("href", pageOf(slice));
    setText(this.number, known ? scale.withUnit(value, digits) : "too few reports");
    setText(this.about, known ? `${scale.interval(lower, upper, digits)} · ${whole(reports)} reports` : `${whole(reports)} reports`);
    this.element.classList.toggle("unknown", !known);
    this.element.classList.toggle("vague", isVague);
    if (!known) return;
    for (const [part, [from, to]] of [[this.whisker, [lower, upper]], [this.low, [lower, lower]], [this.high, [upper, upper]]]) {
      part.setAttribute("x1", percent(place(from)));
      part.setAttribute("x2", percent(place(to)));
    }
    this.point.setAttribute("cx", percent(place(value)));
  }
}

/** The slices over time: a small chart for each, all on one scale; each chart links to the slice's page. */
class Trends {
  constructor(metric) {
    Object.assign(this, {metric, key: "", charts: []});
    this.note = h("p", {class: "note"});
    this.grid = h("div", {class: "smalls"});
    this.element = h("div", {class: "trends"}, this.note, this.grid);
  }

  /** Show the charts of slices; they are made anew if `key`, which names the slices, the window and the number, has changed. */
  show(key, entries, at) {
    if (key !== this.key) {
      this.close();
      this.grid.replaceChildren();
      setText(this.note, "");
      Object.assign(this, {key, isRead: false});
    }
    if (this.isRead || !entries.length || !this.metric.points.length) return;
    this.isRead = true;
    this.#read(entries, at);
  }

  close() {
    for (const chart of this.charts) chart.close();
    this.charts = [];
  }

  async #read(entries, at) {
    const {key} = this;
    try {
      const {points, categories} = await this.metric.slicesOverTime(MOST_CHARTS, STEPS_OVER_TIME);
      if (this.key === key) this.#draw(entries, points, categories?.length === 1 ? 0 : at);
    } catch (problem) {
      if (this.key === key) setText(this.note, problem.message);
    }
  }

  #draw(entries, points, at) {
    const {metric} = this;
    const {scale, definition, title} = metric;
    const isLogarithmic = definition.scale === "log";
    const shown = entries.filter(({value}) => value !== null).sort((a, b) => b.reports - a.reports).slice(0, MOST_CHARTS);
    const all = new Map(shown.map(({name}) => [name, columns(points.filter((one) => sliceName(one.slice) === name).map((one) => ({...one, ...numbersOf(one, at)})), null, definition.range)]));
    const ends = [...all.values()].map((found) => verticalRange(found, null, isLogarithmic));
    const limits = [Math.min(...ends.map(([low]) => low)), Math.max(...ends.map(([, high]) => high))];
    const few = entries.length - shown.length;
    setText(this.note, `Over time, all on one scale; dashed: all devices. Each step's intervals hold for all slices at once.${few ? ` Not drawn: ${whole(few)}.` : ""}`);
    this.close();
    this.grid.replaceChildren(...shown.map(({name, slice, value, lower, upper}) => {
      const chart = new History({scale, limits, isLogarithmic});
      this.charts.push(chart);
      const digits = scale.digits(lower, upper);
      chart.show(all.get(name), `${title} of ${name} over time: ${all.get(name).rows.length} steps`, {reference: metric.where.length ? null : metric.reference()});
      return h("article", {class: "small", "aria-label": name}, h("h4", {}, h("a", {href: pageOf(slice)}, name)), h("p", {}, h("b", {}, scale.withUnit(value, digits)), " ", h("span", {class: "note"}, scale.interval(lower, upper, digits))), chart.element);
    }));
  }
}

/** The panel of a metric whose reports are also summed by attributes of devices. */
export class Slices {
  constructor(metric) {
    Object.assign(this, {rows: [], awaited: ""});
    const {by} = metric.definition;
    const choices = by.length > 1 ? [...by, by.join(",")] : by;
    this.select = h("select", {id: "by", onchange: () => { this.awaited = this.select.value; location.hash = address({by: this.select.value || NOTHING}); }},
      h("option", {value: ""}, NOTHING), choices.map((value) => h("option", {value}, value.replaceAll(",", ", "))));
    this.wider = h("p", {class: "wider"});
    this.note = h("p", {class: "note"});
    this.list = h("ul", {role: "list"});
    this.ends = [h("span", {}), h("span", {})];
    this.chart = h("div", {class: "slices"}, this.list, h("div", {class: "slice-ends", "aria-hidden": "true"}, this.ends));
    this.all = h("button", {type: "button", class: "button small", onclick: () => metric.readSlices(ALL)});
    this.trends = new Trends(metric);
    this.element = h("section", {class: "panel"},
      h("div", {class: "by"}, h("h3", {}, "Slices"), h("label", {for: "by"}, "By"), this.select), this.wider, this.note, this.chart, this.all, this.trends.element);
  }

  close() { this.trends.close(); }

  show(metric) {
    const {slices: found, scale, name} = metric;
    const by = metric.by.join(",");
    if (this.select.value !== by) this.select.value = by;
    const label = metric.leading()?.label;
    const labels = found?.categories ?? found?.coordinates ?? found?.quantiles;
    const at = labels ? labels.indexOf(label) : 0;
    this.chart.hidden = this.all.hidden = true;
    setText(this.wider, widerText(metric, found));
    this.element.setAttribute("aria-busy", String(Boolean(by) && !found));
    const key = JSON.stringify([by, label, metric.place]);
    this.trends.show(key, [], at);
    if (!by || !found || at < 0) return setText(this.note, by ? "Reading …" : "Choose an attribute of devices to compare.");
    this.all.hidden = !found.left_out;
    this.chart.hidden = !found.slices.length;
    const entries = found.slices.map((one) => ({name: sliceName(one.slice), slice: one.slice, reports: one.reports, ...numbersOf(one, at)})).map((one) => ({...one, isVague: isNearlyAll(one, metric.definition.range ?? null)}));
    entries.sort((a, b) => (b.value === null ? -Infinity : b.value) - (a.value === null ? -Infinity : a.value) || b.reports - a.reports);
    this.list.setAttribute("aria-label", `${label ? `${name}, ${metric.leading().name}` : name} by ${found.by.join(", ")}`);
    setText(this.note, entries.length ? aboutOf(found, metric.leading()?.name) : `${windowText(found)} · no reports in slices`);
    this.note.title = found.covers && `The bands cover: ${found.covers}.`;
    setText(this.all, `Show the other ${count(found.left_out)}`);
    this.#draw(entries, scale);
    this.trends.show(key, entries, at);
    if (this.awaited === by) announce(`${entries.length} slices by ${found.by.join(", ")}.`);
    this.awaited = "";
  }

  #draw(entries, scale) {
    while (this.rows.length < entries.length) {
      const row = new Row();
      this.rows.push(row);
      this.list.append(row.element);
    }
    for (const row of this.rows.splice(entries.length)) row.element.remove();
    const known = entries.filter(({value}) => value !== null);
    const low = Math.min(...known.map(({lower}) => lower));
    const high = Math.max(...known.map(({upper}) => upper));
    const place = (x) => 0.02 + 0.96 * ((x - low) / (high - low || 1));
    entries.forEach((entry, index) => this.rows[index].show(entry, place, scale));
    const digits = scale.digits(low, high);
    [low, high].forEach((end, index) => setText(this.ends[index], known.length ? scale.withUnit(end, digits, index ? 1 : -1) : ""));
  }
}

/** What the rows are about, what their bounds promise, and which share of the window's reports they have. */
function aboutOf({simultaneous, coverage, beta, status, ...found}, label) {
  const promise = simultaneous > 1 ? `bounds hold for all ${whole(simultaneous)} slices at once, shown or not, with ${certainty(beta)}` : `the bound holds with ${certainty(beta)}`;
  const covered = coverage === null ? "coverage unknown" : coverage < 1 ? `only ${share(coverage)} of the reports are in slices` : "all reports are in slices";
  return [label, windowText(found), status === "provisional" ? "still counting" : status.replaceAll("_", " "), promise, covered].filter(Boolean).join(" · ");
}
