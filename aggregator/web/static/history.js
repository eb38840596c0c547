// A metric over event time: the estimate of each step, and the band it lies in.

import {h} from "./dom.js";
import {seconds, ticks} from "./format.js";

const root = () => getComputedStyle(document.documentElement);
const color = (name) => root().getPropertyValue(name).trim();
/** Pixels of a length in rem: the charts grow with the type. */
const px = (rem) => Math.round(rem * Number.parseFloat(root().fontSize));
const [UPPER, VALUE, LOWER] = [1, 2, 3];

/** The columns of a chart from a series' points; `index` picks a category or coordinate. */
export function columns(points, index = null) {
  const at = (list) => (index === null ? list : list?.[index]) ?? null;
  const shown = points.map((point) => {
    const has = !["not_ready", "too_few_reports", "expired"].includes(point.status);
    return {
      from: seconds(point.from), to: seconds(point.to), status: point.status, reports: point.reports,
      value: has ? at(point.value) : null, lower: has ? at(point.lower) : null, upper: has ? at(point.upper) : null,
    };
  });
  const x = shown.map((row) => row.from);
  const pick = (key) => shown.map((row) => row[key]);
  const data = [x, pick("upper"), pick("value"), pick("lower")];
  if (shown.length) { // the last step ends at its end
    const last = shown.at(-1);
    data[0].push(last.to);
    for (const key of [UPPER, VALUE, LOWER]) data[key].push(data[key].at(-1));
  }
  return {rows: shown, data};
}

/** The vertical range: all estimates, and bands but for the few that are far wider than most; and `include`. */
export function verticalRange({rows}, include = null) {
  const known = rows.filter((row) => row.value !== null && row.lower !== null && row.upper !== null);
  if (!known.length) return [0, 1];
  const halves = known.map((row) => (row.upper - row.lower) / 2).sort((a, b) => a - b);
  const most = 3 * halves[Math.floor(halves.length / 2)];
  const low = Math.min(include ?? Infinity, ...known.map((row) => Math.min(row.value, Math.max(row.lower, row.value - most))));
  const high = Math.max(include ?? -Infinity, ...known.map((row) => Math.max(row.value, Math.min(row.upper, row.value + most))));
  const margin = (high - low || Math.abs(high) || 1) * 0.06;
  return [low - margin, high + margin];
}

/** A chart that fills its element; `onPick(row)` for the step under the pointer or cursor, null for none. */
export class History {
  constructor({large = false, onPick = null, scale, include = null}) {
    this.element = h("div", {class: large ? "history large" : "history", role: "img"});
    Object.assign(this, {large, onPick, scale, include, found: columns([]), plot: null, reference: null, marks: {moves: [], baselines: []}});
    this.sizes = new ResizeObserver(() => this.#resize());
    this.sizes.observe(this.element);
    this.recolor = () => this.plot?.redraw(false, true);
    addEventListener("themechange", this.recolor);
  }

  close() {
    removeEventListener("themechange", this.recolor);
    this.sizes.disconnect();
    this.plot?.destroy();
    this.plot = null;
  }

  /** Show columns, and a label that says in words what the chart shows; marks: see alarms.js. */
  show(found, label, reference = null, marks = {moves: [], baselines: []}) {
    Object.assign(this, {found, reference, marks});
    this.element.setAttribute("aria-label", label);
    this.element.classList.toggle("pending", !found.rows.length);
    if (!found.rows.length) return;
    const {clientWidth, clientHeight} = this.element;
    if (this.plot) this.plot.setData(found.data);
    else if (clientWidth && clientHeight) this.#draw();
  }

  /** Move the cursor by steps, for the keyboard. */
  step(by) {
    if (!this.plot || !this.found.rows.length) return;
    const last = this.found.rows.length - 1;
    const at = Math.min(last, Math.max(0, (this.plot.cursor.idx ?? (by > 0 ? -1 : last + 1)) + by));
    const {from, to} = this.found.rows[at];
    this.plot.setCursor({left: this.plot.valToPos((from + to) / 2, "x"), top: this.plot.over.clientHeight / 2});
  }

  #resize() {
    const {clientWidth: width, clientHeight: height} = this.element;
    if (!width || !height) return;
    if (!this.plot) return this.found.rows.length ? this.#draw() : undefined;
    if (this.plot.width !== width || this.plot.height !== height) this.plot.setSize({width, height});
  }

  #draw() {
    const {clientWidth: width, clientHeight: height} = this.element;
    const font = `${px(this.large ? 0.82 : 0.72)}px ${color("--font")}`;
    const stepped = globalThis.uPlot.paths.stepped({align: 1});
    const edge = {stroke: () => color("--band-edge"), width: 1, points: {show: false}, paths: stepped};
    const axis = {stroke: () => color("--muted"), font, ticks: {show: false}, border: {show: false}};
    this.plot = new globalThis.uPlot({
      width, height,
      padding: [px(0.5), px(0.9), 0, 0],
      tzDate: (at) => globalThis.uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
      legend: {show: false},
      cursor: {y: false, drag: {x: false, y: false}, points: {show: false}, show: this.large || this.onPick !== null},
      scales: {x: {time: true}, y: {range: () => verticalRange(this.found, this.include)}},
      axes: [
        {...axis, grid: {show: false}, size: (_, values) => (values?.some((text) => text.includes("\n")) ? 2 : 1) * px(this.large ? 1.15 : 0.98) + px(0.5), gap: px(0.4), space: px(this.large ? 5 : 3.3), values: (_, splits, __, ___, increment) => ticks(splits, increment)},
        {...axis, grid: {stroke: () => color("--grid"), width: 1}, size: (plot, values) => this.#axisWidth(plot, values), gap: px(0.4), space: px(this.large ? 3 : 2.1), values: (_, splits) => this.#axisValues(splits)},
      ],
      series: [{}, edge, {stroke: () => color("--estimate"), width: px(0.125), points: {show: false}, paths: stepped}, edge],
      bands: [{series: [UPPER, LOWER], fill: () => color("--band")}],
      hooks: {
        setCursor: [(plot) => this.onPick?.(this.#under(plot.cursor))],
        drawAxes: [(plot) => this.#drawMoves(plot)],
        draw: [(plot) => this.#drawReference(plot)],
      },
    }, this.found.data, this.element);
  }

  #axisWidth(plot, values) {
    if (!values) return px(2.5);
    plot.ctx.save();
    plot.ctx.font = plot.axes[1].font[0];
    const widest = Math.max(...values.map((text) => plot.ctx.measureText(text ?? "").width));
    plot.ctx.restore();
    return Math.ceil(widest / devicePixelRatio) + px(0.75);
  }

  #axisValues(splits) {
    const step = splits.length > 1 ? Math.abs(splits[1] - splits[0]) * this.scale.factor : 1;
    let digits = 0;
    while (digits < 8 && Math.abs(step * 10 ** digits - Math.round(step * 10 ** digits)) > 1e-6) digits += 1;
    return splits.map((at) => this.scale.text(at, digits) + (this.scale.unit === "%" ? "\u00a0%" : ""));
  }

  #under(cursor) {
    if (cursor.left === undefined || cursor.left < 0) return null;
    const at = this.plot.posToVal(cursor.left, "x");
    return this.found.rows.find((row) => row.from <= at && at < row.to) ?? null;
  }

  /** A shade from where each move began, and a line where the alarm was raised. */
  #drawMoves(plot) {
    const {left, top, width, height} = plot.bbox;
    plot.ctx.save();
    for (const {from, at} of this.marks.moves) {
      const [begin, end] = [from, at].map((x) => Math.min(left + width, Math.max(left, plot.valToPos(x, "x", true))));
      if (end <= left || begin >= left + width) continue;
      plot.ctx.fillStyle = color("--moved");
      plot.ctx.fillRect(begin, top, Math.max(devicePixelRatio, end - begin), height);
      plot.ctx.fillStyle = color("--warning");
      plot.ctx.fillRect(end - devicePixelRatio, top, devicePixelRatio, height);
    }
    plot.ctx.restore();
  }

  /** Dashed lines at the estimate over the whole window, and at the baselines of alarms. */
  #drawReference(plot) {
    if (this.reference !== null) this.#drawLevel(plot, this.reference, "--muted");
    for (const baseline of this.marks.baselines) this.#drawLevel(plot, baseline, "--warning");
  }

  #drawLevel(plot, value, stroke) {
    const y = plot.valToPos(value, "y", true);
    const {left, top, width, height} = plot.bbox;
    if (y < top || y > top + height) return;
    plot.ctx.save();
    plot.ctx.strokeStyle = color(stroke);
    plot.ctx.lineWidth = devicePixelRatio;
    plot.ctx.setLineDash([2 * devicePixelRatio, 4 * devicePixelRatio]);
    plot.ctx.beginPath();
    plot.ctx.moveTo(left, Math.round(y) + 0.5);
    plot.ctx.lineTo(left + width, Math.round(y) + 0.5);
    plot.ctx.stroke();
    plot.ctx.restore();
  }
}
