// A two-way table: a row for each value of one axis, a column for each of the other, with the intervals of all cells.

import {get, metricPath} from "./api.js";
import {h, setText} from "./dom.js";
import {certainty} from "./format.js";
import {Refresher} from "./metric.js";
import {isSameWindow, windowQuery} from "./place.js";

const BETWEEN = 4_000; // milliseconds between two questions
const MOST_CELLS = 200;
const SHARES = {all: "Of all people", rows: "Of each row", columns: "Of each column"};

/** How many categories the table of a metric needs; 0 if it has none. */
export const cellsOf = ({axes, categories}) => (axes && Object.keys(axes).length === 2 && categories.length <= MOST_CELLS ? categories.length : 0);

export class TwoWay {
  constructor(metric) {
    const {axes} = metric.definition;
    [this.rows, this.columns] = Object.entries(axes).map(([axis, values]) => ({axis, labels: values.map((value) => `${axis}=${value}`), values}));
    Object.assign(this, {metric, of: "all", place: metric.place, answer: null, found: null});
    this.refresh = new Refresher(BETWEEN, () => document.visibilityState === "visible", () => this.#read());
    this.choice = h("select", {id: "of", onchange: () => { [this.of, this.found] = [this.choice.value, null]; this.#draw(); this.refresh.now(); }}, Object.entries(SHARES).map(([value, text]) => h("option", {value}, text)));
    this.head = h("tr", {});
    this.body = h("tbody", {});
    this.note = h("p", {class: "note"});
    const title = `${this.rows.axis} and ${this.columns.axis}`;
    this.element = h("section", {class: "panel two-way", hidden: true}, h("div", {class: "by"}, h("h3", {}, title), h("label", {for: "of"}, "Shares"), this.choice),
      h("div", {class: "table", tabindex: "0", role: "region", "aria-label": title}, h("table", {}, h("thead", {}, this.head), this.body)), this.note);
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

  /** The margins, or the shares: a question of its own, so that no cell of the answer gets wider. */
  async #read() {
    const {of, place, rows: {axis: row}, columns: {axis: column}} = this;
    const category = {all: [row, column], rows: `${column} / ${row}`, columns: `${row} / ${column}`}[of];
    const found = await get(`${metricPath(this.metric.name)}/estimate`, {...windowQuery(place), where: this.metric.where, category}).catch((problem) => ({problem}));
    if (of !== this.of || place !== this.place) return;
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
    const together = all ? `${certainty(answer?.beta ?? 0.05)} for all cells together, and for all margins together` : beta && `${certainty(beta)} for all cells together`;
    setText(this.note, problem ? [problem.message, problem.remedy].filter(Boolean).join(" ") : together ?? "Reading …");
  }
}
