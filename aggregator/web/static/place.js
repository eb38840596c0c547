// What the page shows, in its address, so that links and the back button work: #metric=NAME&window=7d, or &from=...&to=..., &by=ATTRIBUTE,
// &where=ATTRIBUTE=VALUE (a line each), &label=WHICH of its numbers, &q=WORDS of the filter, and &changed=only.

export const WINDOWS = [["1h", "1 h"], ["24h", "24 h"], ["7d", "7 d"], ["30d", "30 d"], ["90d", "90 d"], ["", "All"]];

/** What the address asks for: {metric, window, from, to, by, where, label, q, changed}; null for what it does not name. */
export function place() {
  const hash = new URLSearchParams(location.hash.slice(1));
  const from = valid(hash.get("from"));
  const to = valid(hash.get("to"));
  const window = WINDOWS.some(([key]) => key && key === hash.get("window")) ? hash.get("window") : null;
  return {metric: hash.get("metric"), window: from || to ? null : window, from, to, by: hash.get("by"), where: hash.get("where"), label: hash.get("label"), q: hash.get("q"), changed: hash.get("changed")};
}

/** A time in ISO 8601 (in UTC unless it names a zone), in the form that the server reads; null for any other text. */
function valid(text) {
  if (!/^\d{4}-\d\d-\d\d(T|$)/.test(text ?? "")) return null;
  const isClear = !text.includes("T") || /(Z|[+-]\d\d:?\d\d)$/i.test(text);
  const utc = isClear ? text : `${text}Z`;
  return Number.isNaN(Date.parse(utc)) ? null : utc;
}

/** The present address with changes: fields that are not named stay as they are, and null removes a field. */
export function address(changes) {
  const next = new URLSearchParams();
  for (const [key, value] of Object.entries({...place(), ...changes})) if (value) next.set(key, value);
  return `#${next}`;
}

/** The address of a metric's page, or of the first page, with the shown window. */
export const metricAddress = (metric, changes = {}) => address({metric, by: null, where: null, label: null, q: null, changed: null, ...changes});

/** The parameters of a query that state the window of event time. */
export const windowQuery = ({window, from, to}) => ({window, from, to});

export const isEverything = ({window, from, to}) => !window && !from && !to;

export const isSameWindow = (one, other) => ["window", "from", "to", "where"].every((key) => one[key] === other[key]);
