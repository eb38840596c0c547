// A metric over event time: the estimate of each step, and its band.

import {h, setText} from "./dom.js";
import {compact, decimalsOf, seconds, stretch, ticks, whole} from "./format.js";

const root = () => getComputedStyle(document.documentElement);
const color = (name) => root().getPropertyValue(name).trim();
/** A length in rem, in pixels: the charts grow with the font size. */
const px = (rem) => Math.round(rem * Number.parseFloat(root().fontSize));
const [UPPER, VALUE, LOWER, VAGUE] = [1, 2, 3, 4];
const WIDEST = 3; // times the usual width: a wider band leaves the chart, and says nothing compared with the others
const NEARLY_ALL = 0.9; // of the allowed values: a band that is so wide says nothing
const NO_MARKS = {moves: [], baselines: []};
const LEAST_SWEEP = 1.5; // rem: a shorter sweep of a finger does not zoom
const MANY = 10_000; // ticks from this number on are written in thousands
const SIXTIETHS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600];
const HOURS = [1, 2, 3, 6, 12, 24, 48, 72, 168];
const CLOCKS = {s: SIXTIETHS, seconds: SIXTIETHS, min: SIXTIETHS, minutes: SIXTIETHS, h: HOURS, hours: HOURS};

/** The median half width of the bands. */
function usualHalf(rows) {
  const halves = rows.filter(isBounded).map((row) => (row.upper - row.lower) / 2).sort((a, b) => a - b);
  return halves.length ? halves[Math.floor(halves.length / 2)] : 0;
}
/** Whether a band covers nearly all allowed values. */
export const isNearlyAll = ({lower, upper}, range) => range !== null && upper - lower >= NEARLY_ALL * (range[1] - range[0]);
const isBounded = ({value, lower, upper}) => value !== null && lower !== null && upper !== null;

/**
 * The columns of a chart from a series' points; `index` is that of a category or coordinate, `range` has the ends of the allowed values.
 * Each step has two points, so that it has its width also before a gap. Steps whose band says nothing have their line in a separate column.
 */
export function columns(points, index = null, range = null) {
  const at = (list) => (index === null ? list : list?.[index]) ?? null;
  const end = (from, to) => Math.max(from, Math.min(to, Date.now() / 1000)); // the last step may not be over
  const rows = points.map((point) => {
    const has = !["not_ready", "too_few_reports", "expired"].includes(point.status);
    return {
      from: seconds(point.from), to: end(seconds(point.from), seconds(point.to)), status: point.status, reports: point.reports,
      value: has ? at(point.value) : null, lower: has ? at(point.lower) : null, upper: has ? at(point.upper) : null,
    };
  });
  const widest = WIDEST * usualHalf(rows);
  for (const row of rows) row.isVague = isBounded(row) && (row.upper - row.lower > 2 * widest || isNearlyAll(row, range));
  const data = [[], [], [], [], []];
  const put = (x, ...numbers) => { data[0].push(x); numbers.forEach((one, column) => data[column + 1].push(one)); };
  rows.forEach((row, place) => {
    const line = row.isVague ? [null, row.value] : [row.value, null];
    const numbers = [row.upper, line[0], row.lower, line[1]];
    put(row.from, ...numbers);
    put(row.to, ...numbers);
    const next = rows[place + 1];
    if (next && (next.from > row.to || next.value === null)) put(row.to, null, null, null, null);
  });
  return {rows, data};
}

/** The vertical range: it contains all estimates, their bands except the few that are far wider than most, and `include`. */
export function verticalRange({rows}, include = null, isLogarithmic = false) {
  const known = rows.filter((row) => isBounded(row) && (!isLogarithmic || row.value > 0));
  if (!known.length) return isLogarithmic ? [1, 10] : [0, 1];
  const most = WIDEST * usualHalf(known);
  const low = Math.min(include ?? Infinity, ...known.map((row) => Math.min(row.value, Math.max(row.lower, row.value - most))));
  const high = Math.max(include ?? -Infinity, ...known.map((row) => Math.max(row.value, Math.min(row.upper, row.value + most))));
  if (isLogarithmic) {
    const least = Math.min(...known.map((row) => (row.lower > 0 ? row.lower : row.value)));
    return [Math.max(low, least) / 1.1, high * 1.1];
  }
  const margin = (high - low || Math.abs(high) || 1) * 0.06;
  return [low - margin, high + margin];
}

/** At most `most` round values between two ends: multiples of 1, 2 or 5 times a power of ten, or of the steps of clocks; on a logarithmic axis, powers. */
export function roundTicks(low, high, most, unit = "", isLogarithmic = false) {
  if (isLogarithmic) {
    const all = (steps) => Array.from({length: 40}, (_, i) => i - 20).flatMap((power) => steps.map((step) => Number((step * 10 ** power).toPrecision(1)))).filter((x) => x >= low && x <= high);
    const found = [[1, 2, 5], [1, 3], [1]].map(all).find((some) => some.length <= most + 1) ?? all([1]).filter((_, i, list) => i % Math.ceil(list.length / most) === 0);
    return found.length > 1 ? found : roundTicks(low, high, most, unit);
  }
  const span = high - low;
  const decimal = Array.from({length: 28}, (_, i) => i - 12).flatMap((power) => [1, 2, 5].map((step) => step * 10 ** power));
  const clock = CLOCKS[unit];
  const steps = clock && span / most >= 0.5 && span / most <= clock.at(-1) ? clock : decimal;
  const step = steps.find((one) => Math.floor(high / one + 1e-9) - Math.ceil(low / one - 1e-9) + 1 <= most) ?? span;
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({length: Math.floor(high / step + 1e-9) - first + 1}, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

/** A chart that fills its element. `limits`: the ends of its vertical axis, if several charts share one; `onZoom(from, to)`: called when somebody drags over a stretch of the chart. */
export class History {
  constructor({large = false, scale, include = null, limits = null, isLogarithmic = false, onZoom = null}) {
    this.drawing = h("div", {class: "drawing"});
    this.pale = [];
    this.tip = h("p", {class: "tip", hidden: true, "aria-hidden": "true"});
    this.element = h("div", {class: large ? "history large" : "history", role: "img"}, this.drawing, this.tip);
    Object.assign(this, {large, scale, include, limits, isLogarithmic, onZoom, onPick: null, found: columns([]), plot: null, reference: null, marks: NO_MARKS, at: null});
    this.sizes = new ResizeObserver(() => this.#resize());
    this.sizes.observe(this.element);
    this.recolor = () => this.plot?.redraw(false, true);
    addEventListener("themechange", this.recolor);
    for (const kind of ["down", "move", "up", "cancel"]) this.drawing.addEventListener(`pointer${kind}`, (event) => event.pointerType === "touch" && this.#touch(kind, event));
  }

  /** Move the cursor if an arrow key, Home or End was pressed. */
  key(event) {
    const by = {ArrowRight: 1, ArrowLeft: -1, Home: -1e9, End: 1e9}[event.key];
    if (!by) return;
    event.preventDefault();
    this.step(by);
  }

  /** Handle a finger: it reads the step at its position, and a long sweep sideways zooms to the swept stretch; up and down it scrolls the page. */
  #touch(kind, event) {
    if (!this.plot) return;
    const at = Math.min(this.plot.over.clientWidth, Math.max(0, event.clientX - this.plot.over.getBoundingClientRect().left));
    if (kind === "down") this.touched = at;
    const [left, width] = [Math.min(this.touched, at), Math.abs(at - this.touched)];
    const isSwept = this.onZoom && width > px(LEAST_SWEEP);
    if (kind === "move" || kind === "down") {
      this.plot.setCursor({left: at, top: this.plot.over.clientHeight / 3});
      this.plot.setSelect({left, width: isSwept ? width : 0, top: 0, height: this.plot.over.clientHeight}, false);
    } else {
      this.plot.setSelect({left, width: kind === "up" && isSwept ? width : 0, top: 0, height: this.plot.over.clientHeight}, kind === "up" && isSwept);
    }
  }

  close() {
    removeEventListener("themechange", this.recolor);
    this.sizes.disconnect();
    this.plot?.destroy();
    this.plot = null;
  }

  /** Show columns. label: what the chart shows, in words; marks: see alarms.js; pale: steps {from, to, value} of a line in the background. */
  show(found, label, {reference = null, marks = NO_MARKS, pale = []} = {}) {
    Object.assign(this, {found, reference, marks, pale});
    this.element.setAttribute("aria-label", label);
    this.element.classList.toggle("pending", !found.rows.length);
    if (!found.rows.length) return;
    const {clientWidth, clientHeight} = this.element;
    if (this.plot) this.plot.setData(found.data);
    else if (clientWidth && clientHeight) this.#draw();
  }

  /** Move the cursor by steps, for the keyboard. */
  step(by) {
    const {rows} = this.found;
    if (!this.plot || !rows.length) return;
    const now = this.at ?? (by > 0 ? -1 : rows.length);
    const {from, to} = rows[Math.min(rows.length - 1, Math.max(0, now + by))];
    this.plot.setCursor({left: this.plot.valToPos((from + to) / 2, "x"), top: this.plot.over.clientHeight / 3});
  }

  /** Zoom to the half of the chart around the cursor, for the keyboard. */
  zoom() {
    const {rows} = this.found;
    const [quarter, at] = [Math.max(1, Math.floor(rows.length / 4)), this.at ?? Math.floor(rows.length / 2)];
    this.onZoom?.(rows[Math.max(0, at - quarter)].from, rows[Math.min(rows.length - 1, at + quarter)].to);
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
    const paths = globalThis.uPlot.paths.linear();
    const line = (stroke, wide, more) => ({stroke: () => color(stroke), width: wide, points: {show: false}, paths, ...more});
    const axis = {stroke: () => color("--muted"), font, ticks: {show: false}, border: {show: false}};
    const most = this.large ? 5 : 4;
    this.plot = new globalThis.uPlot({
      width, height,
      padding: [px(0.7), px(1), 0, 0],
      tzDate: (at) => globalThis.uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
      legend: {show: false},
      cursor: {y: false, drag: {x: Boolean(this.onZoom), y: false, setScale: false}, points: {show: false}},
      scales: {x: {time: true, range: (_, low, high) => [low, high]}, y: {distr: this.isLogarithmic ? 3 : 1, range: () => this.limits ?? this.#range()}},
      axes: [
        {...axis, grid: {show: false}, size: (_, values) => (values?.some((text) => text.includes("\n")) ? 2 : 1) * px(this.large ? 1.15 : 0.98) + px(0.5), gap: px(0.4), space: px(this.large ? 5 : 3.3), values: (plot, splits, __, ___, increment) => this.#unclipped(plot, splits, ticks(splits, increment))},
        {...axis, grid: {stroke: () => color("--grid"), width: 1}, size: (plot, values) => this.#axisWidth(plot, values), gap: px(0.4), filter: (_, splits) => splits, splits: (_, __, low, high) => this.#splits(low, high, most), values: (_, splits) => this.#axisValues(splits)},
      ],
      series: [{}, line("--band-edge", 0), line("--estimate", px(0.125)), line("--band-edge", 0), line("--estimate", px(0.09), {alpha: 0.3})],
      bands: [{series: [UPPER, LOWER], fill: () => color("--band")}],
      hooks: {
        setCursor: [(plot) => this.#point(plot.cursor)],
        setSelect: [(plot) => this.#select(plot)],
        drawAxes: [(plot) => { this.#drawMoves(plot); this.#drawPale(plot); }],
        draw: [(plot) => { this.#drawReference(plot); this.#drawNewest(plot); }],
      },
    }, this.found.data, this.drawing);
  }

  #range() {
    const [low, high] = verticalRange(this.found, this.include, this.isLogarithmic);
    const values = this.pale.map(({value}) => value).filter((x) => x !== null && (!this.isLogarithmic || x > 0));
    return [Math.min(low, ...values), Math.max(high, ...values)];
  }

  #splits(low, high, most) {
    const {factor, unit} = this.scale;
    return roundTicks(low * factor, high * factor, most, unit, this.isLogarithmic).map((x) => x / factor);
  }

  #axisWidth(plot, values) {
    if (!values) return px(2.5);
    return Math.ceil(Math.max(...values.map((text) => this.#widthOf(plot, text)))) + px(0.75);
  }

  #widthOf(plot, text) {
    plot.ctx.save();
    plot.ctx.font = plot.axes[1].font[0];
    const wide = Math.max(...(text ?? "").split("\n").map((one) => plot.ctx.measureText(one).width));
    plot.ctx.restore();
    return wide / devicePixelRatio;
  }

  /** The labels of moments, without a label that the chart's right end would cut. */
  #unclipped(plot, splits, texts) {
    const room = plot.width - plot.bbox.left / devicePixelRatio;
    const {min, max} = plot.scales.x;
    return texts.map((text, i) => (room && (room - px(1)) * (splits[i] - min) / (max - min) + this.#widthOf(plot, text) / 2 > room ? "" : text));
  }

  #axisValues(splits) {
    const all = splits.map((at) => at * this.scale.factor);
    const step = Math.min(...all.slice(1).map((x, i) => Math.abs(x - all[i])), Math.abs(all[0] || 1));
    let digits = 0;
    while (digits < 8 && Math.abs(step * 10 ** digits - Math.round(step * 10 ** digits)) > 1e-6) digits += 1;
    const isMany = Math.max(...all.map(Math.abs)) >= MANY;
    return all.map((x, i) => (isMany ? compact(x) : this.scale.text(splits[i], this.isLogarithmic ? decimalsOf(x) : digits)) + (this.scale.unit === "%" ? "\u00a0%" : ""));
  }

  #point(cursor) {
    const {rows} = this.found;
    const x = cursor.left === undefined || cursor.left < 0 ? null : this.plot.posToVal(cursor.left, "x");
    const at = x === null ? -1 : rows.findIndex((row) => row.from <= x && x < row.to);
    this.at = at < 0 ? null : at;
    const row = rows[at] ?? null;
    this.tip.hidden = !row;
    this.onPick?.(row);
    if (!row) return;
    setText(this.tip, this.textOf(row));
    const place = this.plot.over.offsetLeft + this.plot.valToPos((row.from + row.to) / 2, "x");
    const half = this.tip.offsetWidth / 2;
    this.tip.style.left = `${Math.min(this.element.clientWidth - half, Math.max(half, place))}px`;
  }

  /** A step in words: its time, its value, its interval, and its number of reports. */
  textOf({from, to, status, reports, value, lower, upper}) {
    const digits = this.scale.digits(lower, upper);
    const told = value === null ? status.replaceAll("_", " ") : `${this.scale.withUnit(value, digits)}, between ${this.scale.text(lower, digits, -1)} and ${this.scale.text(upper, digits, 1)}`;
    return `${stretch(from, to)}: ${told}${Number.isFinite(reports) ? ` · ${whole(reports)} reports` : ""}`;
  }

  #select(plot) {
    const {left, width} = plot.select;
    if (!width || !this.onZoom) return;
    const [begin, end] = [left, left + width].map((x) => plot.posToVal(x, "x"));
    plot.setSelect({left: 0, width: 0, top: 0, height: 0}, false);
    const inside = this.found.rows.filter(({from, to}) => to > begin && from < end);
    if (inside.length) this.onZoom(inside[0].from, inside.at(-1).to);
  }

  /** Draw a shade over each episode, from its beginning to its end. */
  #drawMoves(plot) {
    const {left, top, width, height} = plot.bbox;
    plot.ctx.save();
    plot.ctx.fillStyle = color("--moved");
    for (const {from, to} of this.marks.moves) {
      const [begin, end] = [from, to].map((x) => Math.min(left + width, Math.max(left, plot.valToPos(x, "x", true))));
      if (end > left && begin < left + width) plot.ctx.fillRect(begin, top, Math.max(2 * devicePixelRatio, end - begin), height);
    }
    plot.ctx.restore();
  }

  /** Draw the line in the background: of the period before, or of all devices. */
  #drawPale(plot) {
    const {left, top, width, height} = plot.bbox;
    plot.ctx.save();
    plot.ctx.beginPath();
    plot.ctx.rect(left, top, width, height);
    plot.ctx.clip();
    plot.ctx.beginPath();
    this.pale.forEach(({from, to, value}, index) => {
      if (value === null) return;
      const before = this.pale[index - 1];
      const y = plot.valToPos(value, "y", true);
      const isJoined = before && before.value !== null && before.to === from;
      plot.ctx[isJoined ? "lineTo" : "moveTo"](plot.valToPos(from, "x", true), y);
      plot.ctx.lineTo(plot.valToPos(to, "x", true), y);
    });
    plot.ctx.strokeStyle = color("--muted");
    plot.ctx.globalAlpha = 0.55;
    plot.ctx.lineWidth = px(0.1) * devicePixelRatio;
    plot.ctx.stroke();
    plot.ctx.restore();
  }

  /** Draw a dot at the newest step. */
  #drawNewest(plot) {
    const row = this.found.rows.findLast(({value}) => value !== null);
    if (!row || row.isVague) return;
    plot.ctx.save();
    plot.ctx.fillStyle = color("--estimate");
    plot.ctx.beginPath();
    plot.ctx.arc(plot.valToPos(row.to, "x", true), plot.valToPos(row.value, "y", true), px(0.2) * devicePixelRatio, 0, 2 * Math.PI);
    plot.ctx.fill();
    plot.ctx.restore();
  }

  /** Draw dashed lines at the estimate over the whole window, and at the baselines of alarms. */
  #drawReference(plot) {
    if (this.reference !== null) this.#drawLevel(plot, this.reference, "--muted");
    for (const baseline of this.marks.baselines) this.#drawLevel(plot, baseline, "--warning");
  }

  #drawLevel(plot, value, stroke) {
    const y = plot.valToPos(value, "y", true);
    const {left, top, width, height} = plot.bbox;
    if (!(y >= top && y <= top + height)) return;
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
