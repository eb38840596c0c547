// A distribution over event time: a column for each step, a row for each range of values, darker where more people are.

import {h, setText} from "./dom.js";
import {moment, seconds, share, stretch, whole} from "./format.js";

export const ROWS = 32; // ranges of values

/** The panel of a distribution's steps. */
export class HeatMap {
  constructor({scale, name}) {
    Object.assign(this, {scale, points: [], edges: null, at: null});
    this.canvas = h("canvas", {"aria-hidden": "true"});
    this.cursor = h("span", {class: "heat-cursor", hidden: true});
    this.readout = h("p", {class: "readout", id: "heat-readout"});
    this.area = h("div", {class: "heat", tabindex: "0", role: "group", "aria-label": `${name}: how values are spread at each step; the arrow keys move through steps and ranges`, "aria-describedby": "heat-readout",
      onpointermove: (event) => this.#point(event), onpointerleave: () => this.#read(null), onkeydown: (event) => this.#key(event),
      onfocus: () => this.readout.setAttribute("aria-live", "polite"), onblur: () => this.readout.removeAttribute("aria-live")}, this.canvas, this.cursor);
    this.values = h("div", {class: "heat-values", "aria-hidden": "true"});
    this.times = h("div", {class: "heat-times", "aria-hidden": "true"});
    this.note = h("p", {class: "note"}, "Each column is one step: the darker a cell, the larger its share of the people. Without bounds: the history and the table have them.");
    this.element = h("section", {class: "panel", hidden: true}, h("h3", {}, "Distribution over time"), this.readout,
      h("div", {class: "heat-chart"}, this.values, this.area, h("span", {}), this.times), this.note);
    this.recolor = () => this.#draw();
    addEventListener("themechange", this.recolor);
  }

  close() { removeEventListener("themechange", this.recolor); }

  show({points, edges}) {
    const shown = edges ? points : [];
    this.element.hidden = shown.filter(isKnown).length < 2; // a single column says no more than the panel above
    if (shown === this.points || this.element.hidden) return;
    Object.assign(this, {points: shown, edges});
    const marks = [0, 0.25, 0.5, 0.75, 1].map((part) => Math.round(part * (edges.length - 1)));
    this.values.replaceChildren(...marks.reverse().map((place) => h("span", {}, this.#value(Number(edges[place].toPrecision(3))))));
    const [first, last] = [shown[0].from, shown.at(-1).to].map(seconds);
    this.times.replaceChildren(...[first, (first + last) / 2, last].map((at) => h("span", {}, moment(at))));
    this.#draw();
    this.#read(this.at);
  }

  #value(x) { return this.scale.withUnit(x, Number.isInteger(x) ? 0 : 2); }

  #draw() {
    const {points, edges, canvas} = this;
    if (!edges) return;
    const rows = edges.length - 1;
    [canvas.width, canvas.height] = [points.length, rows]; // one pixel for each cell; the page stretches them
    const context = canvas.getContext("2d");
    context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--estimate").trim();
    const most = Math.max(...points.filter(isKnown).flatMap(({shares}) => shares));
    points.forEach((point, column) => {
      if (!isKnown(point)) return;
      point.shares.forEach((part, row) => {
        context.globalAlpha = Math.sqrt(Math.max(0, part) / most); // small shares are seen, too
        context.fillRect(column, rows - 1 - row, 1, 1);
      });
    });
  }

  #point({clientX, clientY}) {
    const {left, top, width, height} = this.area.getBoundingClientRect();
    this.#read([Math.floor((clientX - left) / width * this.points.length), Math.floor((1 - (clientY - top) / height) * (this.edges.length - 1))]);
  }

  #key(event) {
    const by = {ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1], Home: [-1e9, 0], End: [1e9, 0]}[event.key];
    if (!by) return;
    event.preventDefault();
    const [column, row] = this.at ?? [this.points.length - 1, Math.floor((this.edges.length - 1) / 2)];
    this.#read([column + by[0], row + by[1]]);
  }

  #read(at) {
    const {points, edges, cursor} = this;
    this.at = at && [within(at[0], points.length), within(at[1], edges.length - 1)];
    cursor.hidden = !at;
    if (!at) return setText(this.readout, "Point at a cell, or use the arrow keys, to read a share.");
    const [column, row] = this.at;
    Object.assign(cursor.style, {left: `${100 * column / points.length}%`, bottom: `${100 * row / (edges.length - 1)}%`, width: `${100 / points.length}%`, height: `${100 / (edges.length - 1)}%`});
    const point = points[column];
    const told = isKnown(point) ? share(Math.max(0, point.shares[row])) : point.status.replaceAll("_", " ");
    setText(this.readout, `${stretch(seconds(point.from), seconds(point.to))}: ${this.#value(edges[row])} to ${this.#value(edges[row + 1])}: ${told} · ${whole(point.reports)} reports`);
  }
}

const isKnown = ({status, shares}) => !["not_ready", "too_few_reports", "expired"].includes(status) && shares?.[0] !== null;
const within = (place, size) => Math.min(size - 1, Math.max(0, place));
