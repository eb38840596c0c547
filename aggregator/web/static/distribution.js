// The share of people at or below each value, with a band that holds everywhere at once, and the quantiles in it.

import {h, setText, svg} from "./dom.js";
import {certainty, decimalsOf, share} from "./format.js";
import {roundTicks} from "./history.js";
import {windowText} from "./parts.js";

const [WIDTH, HEIGHT] = [1000, 400]; // of the drawing; the page stretches it
const TICKS = 5;
const END = 0.03; // of the width, where a tick's text would leave the chart
const percent = (x) => `${(100 * x).toFixed(2)}%`;

/** The panel of a distribution's shares. */
export class Distribution {
  constructor({scale, definition, name}) {
    Object.assign(this, {scale, isLogarithmic: definition.scale === "log", at: null, key: ""});
    this.note = h("p", {class: "note"});
    this.band = svg("path", {class: "cdf-band"});
    this.line = svg("path", {class: "cdf-line"});
    this.marks = svg("g", {});
    this.cursor = svg("line", {class: "cdf-cursor", y1: 0, y2: HEIGHT, visibility: "hidden"});
    const grid = [0.25, 0.5, 0.75].map((y) => svg("line", {class: "cdf-grid", x1: 0, x2: WIDTH, y1: HEIGHT * (1 - y), y2: HEIGHT * (1 - y)}));
    const drawing = svg("svg", {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true"}, grid, this.band, this.line, this.marks, this.cursor);
    this.readout = h("p", {class: "readout", id: "cdf-readout"});
    this.area = h("div", {class: "cdf", tabindex: "0", role: "group", "aria-label": `${name}: shares below each value; the arrow keys move through them`, "aria-describedby": "cdf-readout",
      onpointermove: (event) => this.#point(event), onpointerleave: () => this.#read(null), onkeydown: (event) => this.#step(event),
      onfocus: () => this.readout.setAttribute("aria-live", "polite"), onblur: () => this.readout.removeAttribute("aria-live")}, drawing);
    this.left = h("div", {class: "cdf-shares", "aria-hidden": "true"}, ["100 %", "75 %", "50 %", "25 %", "0 %"].map((text) => h("span", {}, text)));
    this.ticks = h("div", {class: "cdf-ticks", "aria-hidden": "true"});
    this.chart = h("div", {class: "cdf-chart", hidden: true}, this.left, this.area, h("span", {}), this.ticks);
    this.element = h("section", {class: "panel"}, h("h3", {}, "Distribution"), this.readout, this.chart, this.note);
  }

  show(metric) {
    const found = metric.answer?.distribution;
    this.chart.hidden = !metric.isReady || !found || found.value[0] === null;
    if (this.chart.hidden) {
      setText(this.readout, "");
      return setText(this.note, "No shares yet.");
    }
    const key = JSON.stringify([found, metric.answer.value, metric.answer.lower, metric.answer.upper]);
    if (key === this.key) return;
    Object.assign(this, {key, found, answer: metric.answer});
    this.#draw();
    this.#read(this.at);
    setText(this.note, aboutOf(metric.answer));
  }

  /** The position of a value between the ends, from 0 to 1. */
  #place(x) {
    const {edges} = this.found;
    const of = this.isLogarithmic ? Math.log : (one) => one;
    return (of(x) - of(edges[0])) / (of(edges.at(-1)) - of(edges[0]));
  }

  #draw() {
    const {edges, value, lower, upper} = this.found;
    const x = (one) => (WIDTH * this.#place(one)).toFixed(1);
    const y = (one) => (HEIGHT * (1 - one)).toFixed(1);
    // Between two edges the share is at least that at the left edge, and at most that at the right edge.
    const bins = edges.slice(1).map((end, i) => [edges[i], end, lower[i], upper[i + 1]]);
    const above = bins.map(([from, to, , high]) => `L${x(from)} ${y(high)}L${x(to)} ${y(high)}`).join("");
    const below = bins.toReversed().map(([from, to, low]) => `L${x(to)} ${y(low)}L${x(from)} ${y(low)}`).join("");
    this.band.setAttribute("d", `M${above.slice(1)}${below}Z`);
    this.line.setAttribute("d", `M${edges.map((edge, i) => `${x(edge)} ${y(value[i])}`).join("L")}`);
    const {quantiles, value: values, lower: from, upper: to} = this.answer;
    this.marks.replaceChildren(...quantiles.flatMap((q, i) => values[i] === null ? [] : [
      svg("line", {class: "whisker", x1: x(from[i]), x2: x(to[i]), y1: y(q), y2: y(q)}),
      svg("line", {class: "cdf-point", x1: x(values[i]), x2: x(values[i]), y1: y(q), y2: y(q)}),
    ]));
    this.ticks.replaceChildren(...roundTicks(edges[0], edges.at(-1), TICKS, this.scale.unit, this.isLogarithmic).map((at) => {
      const tick = h("span", {}, this.scale.text(at, decimalsOf(at)));
      const place = this.#place(at);
      Object.assign(tick.style, {left: percent(place), transform: place < END ? "none" : place > 1 - END ? "translateX(-100%)" : ""});
      return tick;
    }));
  }

  #point({clientX}) {
    const {left, width} = this.area.getBoundingClientRect();
    const places = this.found.edges.map((edge) => Math.abs(this.#place(edge) - (clientX - left) / width));
    this.#read(places.indexOf(Math.min(...places)));
  }

  #step(event) {
    const by = {ArrowRight: 1, ArrowLeft: -1, Home: -1e9, End: 1e9}[event.key];
    if (!by) return;
    event.preventDefault();
    const last = this.found.edges.length - 1;
    this.#read(Math.min(last, Math.max(0, (this.at ?? Math.round(last / 2)) + by)));
  }

  #read(at) {
    this.at = at;
    this.cursor.setAttribute("visibility", at === null ? "hidden" : "visible");
    if (at === null) return setText(this.readout, "Point at a value, or use the arrow keys, to read a share.");
    const {edges, value, lower, upper} = this.found;
    const x = (WIDTH * this.#place(edges[at])).toFixed(1);
    for (const end of ["x1", "x2"]) this.cursor.setAttribute(end, x);
    const edge = this.scale.withUnit(edges[at], Number.isInteger(edges[at]) ? 0 : 2);
    setText(this.readout, `Below ${edge}: ${share(value[at])}, ${share(lower[at])} to ${share(upper[at])}`);
  }
}

/** What the band promises, and what the ends mean. */
function aboutOf(answer) {
  const times = answer.covers === "this window" ? "" : ` and ${answer.covers}`;
  const wrong = answer.distribution.crossed ? " These reports contradict each other, as fabricated ones do: nothing is certain." : "";
  const unit = answer.unit ? `values in ${answer.unit} · ` : "";
  return `${unit}${windowText(answer)} · the band holds for all values at once${times} with ${certainty(answer.beta)}; whiskers: the quantiles. Values beyond the ends count in the first and in the last bin.${wrong}`;
}
