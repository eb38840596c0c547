// Categories or coordinates as bars with error bars; the history of the chosen bar is shown.

import {h, setText, svg} from "./dom.js";
import {MOST_DECIMALS} from "./format.js";

const REM = Number.parseFloat(getComputedStyle(document.documentElement).fontSize);
const HEIGHT = 1.12 * REM;
const MIDDLE = HEIGHT / 2;
const CAP = 0.25 * REM;

/** A row of the chart. Its elements are reused and moved, so that a changing value slides. */
class Row {
  constructor(onChoose) {
    const line = (name) => svg("line", {class: name, y1: MIDDLE, y2: MIDDLE});
    const cap = () => svg("line", {class: "whisker", y1: MIDDLE - CAP, y2: MIDDLE + CAP});
    this.bar = svg("rect", {class: "bar-body", y: CAP - 1, height: HEIGHT - 2 * CAP + 2, rx: 2});
    this.zero = svg("line", {class: "zero", y1: 0, y2: HEIGHT});
    [this.whisker, this.low, this.high] = [line("whisker"), cap(), cap()];
    this.point = svg("circle", {class: "point", cy: MIDDLE, r: CAP * 0.75});
    this.name = h("span", {class: "name"});
    [this.text, this.interval] = [h("span", {}), h("span", {class: "interval"})];
    this.moved = h("span", {class: "moved"});
    const drawing = svg("svg", {class: "track", height: HEIGHT, "aria-hidden": "true"}, this.bar, this.zero, this.whisker, this.low, this.high, this.point);
    this.element = h("button", {type: "button", class: "bar-row", role: "radio", onclick: () => onChoose(this.label)}, this.name, drawing, h("span", {class: "number"}, this.text, this.interval), this.moved);
  }

  show(entry, place, scale, digits, {isChosen, isReachable, hasInterval}) {
    this.label = entry.label;
    setText(this.name, entry.name);
    this.name.title = entry.name;
    setText(this.text, scale.text(entry.value, digits));
    setText(this.interval, hasInterval && entry.value !== null ? scale.interval(entry.lower, entry.upper, digits) : "");
    setText(this.moved, entry.change ? { more: "▲", less: "▼" }[entry.change.direction] : "");
    const change = entry.change ? `, ${entry.change.amount} against the period before (${entry.change.interval})` : "";
    this.element.title = change.slice(2);
    const known = entry.value !== null;
    this.element.setAttribute("aria-checked", String(isChosen));
    this.element.setAttribute("tabindex", isReachable ? "0" : "-1");
    this.element.setAttribute("aria-label", known
      ? `${entry.name}: ${scale.withUnit(entry.value, digits)}, between ${scale.text(entry.lower, digits, -1)} and ${scale.text(entry.upper, digits, 1)}${change}`
      : `${entry.name}: no data yet`);
    const percent = (x) => `${(100 * place(x)).toFixed(2)}%`;
    const [left, right] = known ? [Math.min(0, entry.value), Math.max(0, entry.value)] : [0, 0];
    this.bar.setAttribute("x", percent(left));
    this.bar.setAttribute("width", `${(100 * (place(right) - place(left))).toFixed(2)}%`);
    for (const end of ["x1", "x2"]) this.zero.setAttribute(end, percent(0));
    this.element.classList.toggle("unknown", !known);
    if (!known) return;
    this.whisker.setAttribute("x1", percent(entry.lower));
    this.whisker.setAttribute("x2", percent(entry.upper));
    for (const end of ["x1", "x2"]) {
      this.low.setAttribute(end, percent(entry.lower));
      this.high.setAttribute(end, percent(entry.upper));
    }
    this.point.setAttribute("cx", percent(entry.value));
  }
}

/** A radio group of bars: the arrow keys choose. */
export class Bars {
  /** isFunnel: whether the scale goes to 100 %, so that the missing part is seen; hasLongNames: whether names stand above their bars where the page is narrow. */
  constructor({label, scale, onChoose, hasIntervals = false, isFunnel = false, hasLongNames = false}) {
    Object.assign(this, {scale, onChoose, hasIntervals, isFunnel, rows: [], entries: [], chosen: null});
    this.element = h("div", {class: ["bars", isFunnel && "funnel", hasLongNames && "long-names"].filter(Boolean).join(" "), role: "radiogroup", "aria-label": label, onkeydown: (event) => this.#key(event)});
  }

  /** Show entries {label, name, value, lower, upper} on one scale; an entry's `change` is how it has changed, see change.js. */
  show(entries, chosen) {
    Object.assign(this, {entries, chosen});
    while (this.rows.length < entries.length) {
      const row = new Row((label) => this.onChoose(label));
      this.rows.push(row);
      this.element.append(row.element);
    }
    for (const row of this.rows.splice(entries.length)) row.element.remove();
    const known = entries.filter((entry) => entry.value !== null);
    const low = Math.min(0, ...known.map((entry) => Math.min(entry.lower, entry.value)));
    const high = Math.max(this.isFunnel ? 1 : 0, ...known.map((entry) => Math.max(entry.upper, entry.value)));
    const digits = Math.min(MOST_DECIMALS, ...known.map((entry) => this.scale.digits(entry.lower, entry.upper)));
    const span = high - low || 1;
    const place = (x) => 0.01 + 0.98 * ((x - low) / span);
    const reachable = (entries.find(({label}) => label === chosen) ?? entries[0])?.label; // the chosen label may be in another chart
    const focused = this.element.contains(document.activeElement);
    entries.forEach((entry, index) => this.rows[index].show(entry, place, this.scale, digits, {isChosen: entry.label === chosen, isReachable: entry.label === reachable, hasInterval: this.hasIntervals}));
    if (focused) this.element.querySelector("[aria-checked=true]")?.focus(); // the order may have changed
  }

  #key(event) {
    const by = {ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1}[event.key];
    const last = this.entries.length - 1;
    const now = this.entries.findIndex((entry) => entry.label === this.chosen);
    const to = event.key === "Home" ? 0 : event.key === "End" ? last : by ? (now + by + last + 1) % (last + 1) : null;
    if (to === null) return;
    event.preventDefault();
    this.onChoose(this.entries[to].label);
    this.rows[to].element.focus();
  }
}
