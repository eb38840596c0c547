// The HTTP API: JSON in and out, problem details as errors, and an access token where the server asks for one.

import {h} from "./dom.js";

const TOKEN = "dither.token";
const SELDOM = 60_000; // milliseconds between two looks at nothing

/** Why a request was not answered (RFC 9457): `message` says what was wrong, `remedy` what to do. */
export class Problem extends Error {
  constructor(status, detail, remedy = "", retryAfter = null) {
    super(detail);
    Object.assign(this, {status, remedy, retryAfter});
  }
  get wantsToken() { return this.status === 401 || this.status === 403; }
}

/** Keeps the token until this tab is closed; until this page is left, if the browser denies storage. */
const session = (() => {
  try { return sessionStorage; } catch { /* cookies and site data are blocked */ }
  const texts = new Map();
  return {getItem: (key) => texts.get(key) ?? null, setItem: (key, text) => texts.set(key, text), removeItem: (key) => texts.delete(key)};
})();

/** The headers with the access token. */
export function authorization() {
  const token = session.getItem(TOKEN);
  return token ? {Authorization: `Bearer ${token}`} : {};
}

let scopes = [];

/** Whether this page's token may change settings, by the scopes in the server's last answer. */
export const isAdministrator = () => scopes.includes("admin");

/** Send a request, and return the response; throw a Problem if it is not a success. */
export async function request(path, options = {}) {
  let response;
  try {
    response = await fetch(path, {credentials: "same-origin", ...options, headers: {...authorization(), ...options.headers}});
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "The server does not answer.", "Check that `dither serve` runs and can be reached; this page retries by itself.");
  }
  scopes = response.headers.get("Dither-Scopes")?.split(" ") ?? scopes;
  if (!response.ok) throw await problemOf(response);
  return response;
}

async function problemOf(response) {
  const retryAfter = Number(response.headers.get("Retry-After")) || null;
  let body = {};
  try { body = await response.json(); } catch { /* not from Dither: a proxy's page */ }
  const detail = body.detail ?? body.title ?? `${response.status} ${response.statusText}`;
  return new Problem(response.status, detail, body.remedy ?? "", retryAfter);
}

/** Return `path` with the parameters that are not null; a list becomes a repeated parameter. */
export function withQuery(path, parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const one of [value].flat()) if (one !== null && one !== undefined) query.append(name, one);
  }
  const text = query.toString();
  return text ? `${path}?${text}` : path;
}

/** GET `path` with parameters, and return the answer, parsed from JSON. */
export async function get(path, parameters = {}, options = {}) {
  return (await request(withQuery(path, parameters), options)).json();
}

/** GET `path` with parameters, and return the answer as a file. */
export async function getFile(path, parameters) { return (await request(withQuery(path, parameters))).blob(); }

/** Read a feed every `between` milliseconds while somebody looks; seldom while the feed is empty. */
export function keepReading(feed, between) {
  const read = document.visibilityState === "visible" ? feed.read() : Promise.resolve();
  read.finally(() => setTimeout(keepReading, feed.all().length || feed.problem ? between : SELDOM, feed, between));
}

export const metricPath = (name) => `/v1/metrics/${encodeURIComponent(name)}`;

/** Set a metric's weight policy; ask the person for a token if the server requires one. */
export async function putPolicy(name, policy) {
  const put = () => request(`${metricPath(name)}/weights`, {
    method: "PUT",
    headers: {"Content-Type": "application/json"},
    body: JSON.stringify({policy}),
  });
  return (await withToken(put)).json();
}

/** Run `attempt`; while the server requires a token and the person gives one, run it again. A token that did not help is not kept. */
export async function withToken(attempt) {
  const before = session.getItem(TOKEN);
  for (;;) {
    try {
      return await attempt();
    } catch (error) {
      const token = error instanceof Problem && error.wantsToken ? await askForToken(error) : null;
      if (token !== null) {
        session.setItem(TOKEN, token);
        continue;
      }
      if (before === null) session.removeItem(TOKEN);
      else session.setItem(TOKEN, before);
      throw error;
    }
  }
}

let asking = null;

/** Ask the person for a token; only one dialog is open at a time. */
function askForToken(problem) {
  asking ??= new Promise((resolve) => {
    const input = h("input", {type: "password", id: "token", autocomplete: "off", spellcheck: "false", required: true, "aria-describedby": "token-why"});
    const dialog = h("dialog", {class: "dialog", "aria-labelledby": "token-title"},
      h("form", {onsubmit: (event) => { event.preventDefault(); dialog.close(input.value.trim()); }},
        h("h2", {id: "token-title"}, "Access token"),
        h("p", {id: "token-why"}, problem.message, problem.remedy ? ` ${problem.remedy}` : ""),
        h("label", {for: "token"}, "Token"), input,
        h("p", {class: "note"}, "Stored for this tab only, until you close it."),
        h("div", {class: "actions"},
          h("button", {type: "button", class: "button quiet", onclick: () => dialog.close("")}, "Cancel"),
          h("button", {type: "submit", class: "button"}, "Use it"))));
    dialog.addEventListener("close", () => { dialog.remove(); asking = null; resolve(dialog.returnValue || null); });
    document.body.append(dialog);
    dialog.showModal();
  });
  return asking;
}
