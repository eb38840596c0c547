// The dashboard: reads the definitions, follows the events, and shows the wall or one metric.

import {get, Problem, withQuery, withToken} from "./api.js";
import {Detail} from "./detail.js";
import {announce, h, setText} from "./dom.js";
import {FEATURES} from "./features.js";
import {duration, seconds, TURNING} from "./format.js";
import {openGuide} from "./guide.js";
import {Operations} from "./operations.js";
import {isTrusted, problemNotice} from "./parts.js";
import {place} from "./place.js";
import {rangePicker} from "./range.js";
import {follow} from "./stream.js";
import {filterField, haveWords, Wall} from "./wall.js";

const LIVE_TOP = 20;
const SETTLE = 2_000; // a connection lost for less is not announced
const GATHER = 250; // milliseconds in which cards that come into view are followed together

const main = document.getElementById("main");
const picker = rangePicker(document.getElementById("range"));
const operations = new Operations(document.getElementById("operations"), document.getElementById("alerts"));
const known = {definitions: [], hash: null, answers: new Map(), status: null};
const boards = FEATURES.map((feature) => {
  if (!feature.isOnFirstPage) return {feature, panel: null, feed: null};
  const section = feature.section();
  section.id = section.classList[0];
  return {feature, panel: new feature.Panel(section, () => known.definitions), feed: null};
});
document.getElementById("features").append(...boards.map(({panel}) => panel?.element ?? ""));
let view = null;
let wall = null; // the view, where it is the first page
let shown = null;
let stream = null;
let followed = []; // metrics

/** The views that show metrics now: the cards of the first page, or the page of one metric. */
const views = () => wall?.cards ?? (view ? [view] : []);

function show() {
  const here = place();
  const definition = known.definitions.find((one) => one.name === here.metric);
  const wanted = here.metric === null ? "" : definition ? `metric ${here.metric}` : `unknown ${here.metric}`;
  if (wanted === shown) return view?.go(here);
  const first = shown === null;
  view?.close();
  [view, wall] = [null, null];
  shown = wanted;
  document.body.dataset.view = wanted ? "one" : "wall";
  document.title = wanted ? `${definition?.title || here.metric} – Dither` : "Dither";
  if (wanted && !definition) {
    main.replaceChildren(problemNotice(new Problem(404, `There is no metric “${here.metric}”.`, "The dashboard's first page lists all metrics.")));
  } else if (wanted) {
    view = new Detail(definition, here);
    main.replaceChildren(view.element);
    catchUp(view);
    followSeen();
  } else {
    view = wall = new Wall(known.definitions, here, catchUp, showPanels);
    main.replaceChildren(known.definitions.length ? wall.element : h("p", {class: "loading"}, "No metric is defined. Define metrics in metrics.toml."));
  }
  setText(document.getElementById("promise"), promise(definition ? [definition] : known.definitions));
  showPanels();
  if (!first) {
    scrollTo(0, 0);
    main.focus({preventScroll: true});
  }
}

/** How the shown values were collected, and what is certain about them. */
function promise(definitions) {
  const trusted = definitions.filter(isTrusted).length;
  const values = !trusted ? "Every value was randomized on its device"
    : trusted < definitions.length ? "Values were randomized on their devices, except for metrics marked Trusted"
      : "Devices send true values; this page shows only releases";
  return `Times are UTC. ${values}; bands hold with the stated probability.`;
}

/** The event time that half of the shown metrics have reached, as a single metric may be far ahead. */
function reached(metrics) {
  const times = views().map(({metric}) => seconds(metrics[metric.name]?.event_time)).filter((at) => at !== null).sort((a, b) => a - b);
  return times[times.length >> 1];
}

/** Follow only the metrics on the screen, so that the others cost nothing. */
function followSeen() {
  const seen = views().filter(({metric}) => metric.isOnScreen).map(({metric}) => metric.name);
  if (wall ? seen.every((name) => followed.includes(name)) : followed.join() === seen.join()) return;
  followed = seen;
  stream?.again();
}

/** The followed metrics that are still defined. If there are none, the first metric, because a request without names asks for all. */
function followedNow() {
  const names = known.definitions.map(({name}) => name);
  const found = names.filter((name) => followed.includes(name));
  return found.length ? found : names.slice(0, 1);
}

/** Give a new view the newest answer and status of its metric. */
function catchUp(made) {
  const {metric} = made;
  const answer = known.answers.get(metric.name);
  if (answer) metric.take(answer);
  const status = known.status?.metrics[metric.name];
  if (status) metric.takeStatus(status);
  for (const {feature, feed} of boards) if (feed) made.showFeature(feature, feed);
}

/** Show a feature's panel on the first page, with all that concerns a shown metric or has the words of the filter. */
function showPanel({feature, panel, feed}) {
  if (!panel || !feed) return;
  const ofShown = wall ? wall.found.flatMap(({name}) => feed.of(name)) : [];
  panel.show(feed.all().filter((one) => wall && (ofShown.includes(one) || haveWords(feature.textOf(one), wall.words))), feed);
}

const showPanels = () => boards.forEach(showPanel);

/** Show the state of a feature on the first page, and on each metric's card or page. */
function showBoard(board) {
  const {feature, feed} = board;
  showPanel(board);
  for (const one of views()) one.showFeature(feature, feed);
}

function take({type, data}) {
  if (type === "estimate") {
    known.answers.set(data.metric, data);
    for (const {metric} of views()) if (metric.name === data.metric) metric.take(data);
  } else if (type === "status") {
    if (known.status && known.status.version !== data.version) location.reload(); // a wall screen stays for months
    if (data.definitions_hash && data.definitions_hash !== known.hash) readAgain().catch(() => {}); // or with the next status
    known.status = data;
    operations.show(data);
    picker.suggest(reached(data.metrics));
    for (const {metric} of views()) if (data.metrics[metric.name]) metric.takeStatus(data.metrics[metric.name]);
    setText(document.getElementById("version"), data.version ? `Dither ${data.version}` : "");
  } else if (type === "policy") {
    known.definitions = known.definitions.map((one) => (one.name === data.metric ? {...one, policy: data.policy} : one));
    for (const {metric} of views()) if (metric.name === data.metric && metric.definition.policy !== data.policy) metric.takePolicy(data.policy);
  }
}

/** Read the definitions from the server, without characters in their texts that would change the direction of other text. */
async function readDefinitions() {
  const {metrics, definitions_hash: hash} = await get("/v1/metrics");
  const texts = ({title, group, description, unit}) => Object.entries({title, group, description, unit}).filter(([, text]) => text);
  return {hash, definitions: metrics.map((one) => ({...one, ...Object.fromEntries(texts(one).map(([key, text]) => [key, text.replace(TURNING, "").trim()]))}))};
}

/** Read the definitions again, because they have changed, or may have changed while the page was disconnected. */
async function readAgain() {
  const {definitions, hash} = await readDefinitions();
  known.hash = hash;
  if (JSON.stringify(definitions) !== JSON.stringify(known.definitions)) {
    known.definitions = definitions;
    shown = null;
    show();
  } else {
    for (const {metric} of views()) metric.again();
  }
}

function connect() {
  const connection = document.getElementById("connection");
  const text = document.getElementById("connection-text");
  let lost = null;
  let was = null;
  let live = null; // of a status: a stream that is open says nothing about who counts
  const tell = () => {
    connection.dataset.state = live !== null && !live.counting ? "silent" : live?.trouble ? "trouble" : live?.text === "Idle" ? "idle" : "live";
    setText(text, [live?.text ?? "Live", live?.trouble].filter(Boolean).join(" · "));
  };
  operations.onLive = (found) => {
    if (live !== null && live.text !== found.text) announce(found.text);
    live = found;
    if (was === "live") tell();
  };
  const authorize = () => withToken(() => get("/v1/status")).then(() => stream.retry(), () => {});
  stream = follow(() => withQuery("/v1/events", {top: LIVE_TOP, metric: followedNow()}), {
    onEvent: take,
    onState(state, {seconds, problem}) {
      connection.dataset.state = state;
      if (state === "live") tell();
      else setText(text, {connecting: "Connecting", refused: "No access"}[state] ?? `Reconnecting${seconds > 2 ? ` in ${duration(Math.ceil(seconds))}` : ""}`);
      operations.disconnected(state === "live" ? null : problem ?? null, state === "refused" ? {text: "Enter a token", press: authorize} : null);
      clearTimeout(lost);
      if (state === "live") announce("Live.");
      else if (state !== "connecting") lost = setTimeout(() => announce("Not live: reconnecting."), SETTLE);
      if (state === "live" && was !== "connecting") readAgain().catch(() => {});
      if (problem?.status === 404) readAgain().catch(() => {}); // a metric is gone
      if (state === "refused" && was !== "refused") authorize();
      was = state;
    },
  });
}

async function start() {
  for (let wait = 1000; ; wait = Math.min(2 * wait, 15_000)) {
    try {
      Object.assign(known, await withToken(readDefinitions));
      break;
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      main.replaceChildren(problemNotice(error));
      await new Promise((resolve) => setTimeout(resolve, Math.max(wait, (error.retryAfter ?? 0) * 1000)));
    }
  }
  show();
  for (const board of boards) board.feed = new board.feature.Feed(() => showBoard(board));
  addEventListener("hashchange", show);
  let gathering = 0;
  main.addEventListener("seen", () => { clearTimeout(gathering); gathering = setTimeout(followSeen, GATHER); });
  const looking = new IntersectionObserver(() => { // it reports together with the cards' own observers: then it is known which cards are seen
    looking.disconnect();
    setTimeout(() => { followSeen(); connect(); });
  });
  looking.observe(main);
}

filterField(document.getElementById("filter"), () => wall);
operations.foldInto(document.getElementById("connection"));
document.getElementById("help").addEventListener("click", () => openGuide());
start();
