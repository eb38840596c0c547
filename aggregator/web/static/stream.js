// Server-sent events by fetch, because EventSource cannot send a token; a stream resumes by id, with back-off.

import {Problem, request} from "./api.js";

const FIRST_WAIT = 500;
const LONGEST_WAIT = 15_000;
const SILENCE = 40_000; // the server sends a comment every 15 s: longer is a dead connection

/** Splits a stream's text into events; feed() takes the text in pieces of any length. */
export class EventParser {
  constructor(onEvent, onRetry = () => {}) {
    Object.assign(this, {onEvent, onRetry, rest: "", id: null});
    this.#clear();
  }
  #clear() { this.type = "message"; this.data = []; }
  feed(text) {
    const lines = (this.rest + text).split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop();
    for (const line of lines) this.#line(line);
  }
  #line(line) {
    if (line === "") {
      if (this.data.length) this.onEvent({type: this.type, data: this.data.join("\n"), id: this.id});
      return this.#clear();
    }
    const colon = line.indexOf(":");
    if (colon === 0) return; // a comment: the heartbeat
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") this.type = value;
    else if (field === "data") this.data.push(value);
    else if (field === "id" && !value.includes("\0")) this.id = value;
    else if (field === "retry" && /^\d+$/.test(value)) this.onRetry(Number(value));
  }
}

/**
 * Follow `url()` for ever; again() asks from the beginning where that has changed.
 *
 * onEvent({type, data}) for every event, data parsed from JSON; onState("connecting" | "live" |
 * "reconnecting" | "refused", {seconds, problem}) whenever that changes.
 */
export function follow(url, {onEvent, onState}) {
  let lastId = null;
  let wait = FIRST_WAIT;
  let failures = 0;
  let wake = () => {};
  let stopped = false;
  let isOther = false;
  let controller = null;

  async function once() {
    if (isOther) [isOther, lastId] = [false, null];
    controller = new AbortController();
    let watchdog;
    const alive = () => { clearTimeout(watchdog); watchdog = setTimeout(() => controller.abort(), SILENCE); };
    alive();
    try {
      const headers = {Accept: "text/event-stream", ...(lastId === null ? {} : {"Last-Event-ID": lastId})};
      const response = await request(url(), {headers, cache: "no-store", signal: controller.signal});
      onState("live", {});
      const parser = new EventParser(({type, data, id}) => {
        lastId = id ?? lastId;
        [failures, wait] = [0, FIRST_WAIT];
        onEvent({type, data: JSON.parse(data)});
      }, (milliseconds) => { wait = Math.min(milliseconds, LONGEST_WAIT); });
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const {done, value} = await reader.read();
        if (done) return null;
        alive();
        parser.feed(value);
      }
    } finally {
      clearTimeout(watchdog);
      controller.abort();
    }
  }

  async function forever() {
    onState("connecting", {});
    while (!stopped) {
      let problem = null;
      try {
        await once();
      } catch (error) {
        problem = error instanceof Problem ? error : null;
      }
      if (stopped) return;
      if (isOther) continue;
      failures += 1;
      const asked = problem?.retryAfter ? problem.retryAfter * 1000 : wait;
      const pause = Math.max(asked, Math.min(LONGEST_WAIT, asked * 2 ** (failures - 1)) * (0.75 + Math.random() / 2));
      const refused = problem?.wantsToken ?? false;
      onState(refused ? "refused" : "reconnecting", {seconds: pause / 1000, problem});
      await new Promise((resolve) => { wake = resolve; setTimeout(resolve, pause); });
    }
  }

  const now = () => { failures = 0; wake(); };
  const visible = () => { if (document.visibilityState === "visible") now(); };
  addEventListener("online", now);
  document.addEventListener("visibilitychange", visible);
  forever();
  return {
    retry: now,
    again() {
      isOther = true;
      controller?.abort();
      now();
    },
    stop() {
      stopped = true;
      removeEventListener("online", now);
      document.removeEventListener("visibilitychange", visible);
      controller?.abort();
      wake();
    },
  };
}
