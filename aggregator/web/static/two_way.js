// A two-way table: a row for each value of one axis, a column for each of another, with the intervals of all cells.

import {get, metricPath} from "./api.js";
import {h, setText} from "./dom.js";
import {certainty} from "./format.js";
import {Refresher} from "./metric.js";
import {isSameWindow, windowQuery} from "./place.js";

const BETWEEN = 4_000; // milliseconds between two questions
const MOST_CELLS = 200;
const SHARES = {all: "Of all people", rows: "Of each row", columns: "Of each column"};

const countAxes = ({axes}) => Object.keys(axes ?? {}).length;

/** How many categories of the answer a metric's table needs: all if it has two axes; none if it has more, because the cells of a pair are a separate question. */
export const cellsOf = (definition) => (countAxes(definition) === 2 && definition.categories.length <= MOST_CELLS ? definition.categories.length : 0);

/** Whether a metric has a table. */
export const hasTable = (definition) => countAxes(definition) > 2 || cellsOf(definition) > 0;

const titleOf = (row, column) => `${row.axis} and ${column.axis}`;

export class TwoWay {
  constructor(metric) {
    this.axes = Object.entries(metric.definition.axes).map(([axis, values]) => ({axis, labels: values.map((value) => `${axis}=${value}`), values}));
    const pairs = this.axes.flatMap((row, i) => this.axes.slice(i + 1).map((column) => [row, column]));
    [this.rows, this.columns] = pairs[0];
    Object.assign(this, {metric, of: "all", place: metric.place, answer: null, found: null});
    this.refresh = new Refresher(BETWEEN, () => document.visibilityState === "visible", () => this.#read());
    this.choice = h("select", {id: "of", onchange: () => { this.of = this.choice.value; this.#ask(); }}, Object.entries(SHARES).map(([value, text]) => h("option", {value}, text)));
    this.pair = h("select", {id: "pair", onchange: () => { [this.rows, this.columns] = pairs[this.pair.value]; this.#ask(); }}, pairs.map((pair, value) => h("option", {value}, titleOf(...pair))));
    this.head = h("tr", {});
    this.body = h("tbody", {});
    this.note = h("p", {class: "note"});
    this.title = h("h3", {id: "axes"}, titleOf(...pairs[0]));
    this.element = h("section", {class: "panel two-way", hidden: true}, h("div", {class: "by"}, this.title, pairs.length > 1 && [h("label", {for: "pair"}, "Axes"), this.pair], h("label", {for: "of"}, "Shares"), this.choice),
      h("div", {class: "table", tabindex: "0", role: "region", "aria-labelledby": "axes"}, h("table", {}, h("thead", {}, this.head), this.body)), this.note);
  }

  /** Ask for other shares, or other axes. */
  #ask() {
    this.found = null;
    setText(this.title, titleOf(this.rows, this.columns));
    this.#draw();
    this.refresh.now();
  }

  show({answer, place, isReady}) {
    this.element.hidden = !isReady;
    if (!isReady || (answer === this.answer && place === this.place)) return;
    const isOther = !isSameWindow(place, this.place);
    if (isOther) this.found = null;
    Object.assign(this, {answer, place});
    if (isOther) this.refresh.now();
    else this.refresh.soon();
    this.#draw();
  }

  close() { this.refresh.stop(); }

  /** Read the margins or the shares by a separate question, so that no cell of the answer gets wider bounds; with three axes or more, also the cells. */
  async #read() {
    const {of, place, rows, columns} = this;
    const [row, column] = [rows.axis, columns.axis];
    const cells = this.axes.length > 2 ? [`${row}, ${column}`] : [];
    const category = {all: [...cells, row, column], rows: `${column} / ${row}`, columns: `${row} / ${column}`}[of];
    const found = await get(`${metricPath(this.metric.name)}/estimate`, {...windowQuery(place), where: this.metric.where, category}).catch((problem) => ({problem}));
    if (of !== this.of || place !== this.place || rows !== this.rows || columns !== this.columns) return;
    this.found = found;
    this.#draw();
  }

  #draw() {
    const {of, metric: {scale}, rows, columns, found, answer} = this;
    const numbers = new Map([answer, found].filter((one) => one?.categories).flatMap(({categories, value, lower, upper}) => categories.map((label, i) => [label, {value: value?.[i], lower: lower?.[i], upper: upper?.[i]}])));
    const label = {all: (row, column) => `${row}, ${column}`, rows: (row, column) => `${column} / ${row}`, columns: (row, column) => `${row} / ${column}`}[of];
    const all = of === "all";
    const cells = rows.labels.map((row) => [...columns.labels.map((column) => label(row, column)), ...(all ? [row] : [])]);
    if (all) cells.push([...columns.labels, null]);
    const margins = [...rows.labels, ...columns.labels];
    const known = cells.flat().map((one) => numbers.get(one)).filter((one) => typeof one?.value === "number");
    const digits = Math.max(0, ...known.map(({lower, upper}) => scale.digits(lower, upper)));
    const cell = (one) => {
      const number = numbers.get(one);
      if (typeof number?.value !== "number") return h("td", {}, one === null ? "" : "–");
      const shown = h("td", {}, h("b", {}, scale.withUnit(number.value, digits)), h("span", {class: "interval"}, scale.interval(number.lower, number.upper, digits)));
      if (!margins.includes(one)) shown.style.setProperty("--share", `${Math.round(100 * Math.max(0, number.value))}%`);
      return shown;
    };
    const names = (values) => [...values, ...(all ? ["All"] : [])];
    this.head.replaceChildren(h("th", {scope: "col"}, `${rows.axis} \\ ${columns.axis}`), ...names(columns.values).map((name) => h("th", {scope: "col"}, name)));
    this.body.replaceChildren(...names(rows.values).map((name, i) => h("tr", {class: i === rows.values.length ? "all" : null}, h("th", {scope: "row"}, name), cells[i].map(cell))));
    const {problem, beta} = found ?? {};
    const together = all && this.axes.length === 2 ? `${certainty(answer?.beta ?? 0.05)} for all cells together, and for all margins together` : beta && `${certainty(beta)} for all ${all ? "numbers" : "cells"} together`;
    setText(this.note, problem ? [problem.message, problem.remedy].filter(Boolean).join(" ") : together ?? "Reading …");
  }
}
