// Where one is, in the address, so that it can be linked and gone back to: #metric=NAME&window=7d, or &from=...&to=..., &by=ATTRIBUTE,
// &where=ATTRIBUTE=VALUE (a line each), &label=WHICH of its numbers, &q=WORDS of the filter, and &changed=only.

export const WINDOWS = [["1h", "1 h"], ["24h", "24 h"], ["7d", "7 d"], ["30d", "30 d"], ["90d", "90 d"], ["", "All"]];

/** What the address asks for: {metric, window, from, to, by, where, label, q, changed}, null where it does not say. */
export function place() {
  const hash = new URLSearchParams(location.hash.slice(1));
  const from = valid(hash.get("from"));
  const to = valid(hash.get("to"));
  const window = WINDOWS.some(([key]) => key && key === hash.get("window")) ? hash.get("window") : null;
  return {metric: hash.get("metric"), window: from || to ? null : window, from, to, by: hash.get("by"), where: hash.get("where"), label: hash.get("label"), q: hash.get("q"), changed: hash.get("changed")};
}

/** A time in ISO 8601, in UTC unless it names a zone, as the server reads it; null if it is none. */
function valid(text) {
  if (!/^\d{4}-\d\d-\d\d(T|$)/.test(text ?? "")) return null;
  const isClear = !text.includes("T") || /(Z|[+-]\d\d:?\d\d)$/i.test(text);
  const utc = isClear ? text : `${text}Z`;
  return Number.isNaN(Date.parse(utc)) ? null : utc;
}

/** The address of another place: what is not named stays as it is; null removes. */
export function address(changes) {
  const next = new URLSearchParams();
  for (const [key, value] of Object.entries({...place(), ...changes})) if (value) next.set(key, value);
  return `#${next}`;
}

/** The address of a metric's page, or of the first page, in the window that is shown. */
export const metricAddress = (metric, changes = {}) => address({metric, by: null, where: null, label: null, q: null, changed: null, ...changes});

/** The part of a query that the window of event time is. */
export const windowQuery = ({window, from, to}) => ({window, from, to});

export const isEverything = ({window, from, to}) => !window && !from && !to;

export const isSameWindow = (one, other) => ["window", "from", "to", "where"].every((key) => one[key] === other[key]);
