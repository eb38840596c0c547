// Evaluates what comes in, one string of JSON a line, and answers in JSON: a browser's modules without a browser.
// `dither` is the module for devices, `load(name)` any module of the folder; what a page has beside them is a stand-in.

import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const folder = pathToFileURL(`${process.argv[2]}/`);
const { fetch } = globalThis;
const PATIENCE = 120_000; // milliseconds

class Store extends Map {
  getItem(key) { return this.get(key) ?? null; }
  setItem(key, value) { this.set(key, String(value)); }
}

let last = Promise.resolve();
const locks = { request: (_, task) => (last = last.then(task)) };
const document = { documentElement: {}, visibilityState: "visible", addEventListener() {}, removeEventListener() {} };
const given = {
  document, location: { href: "http://device.test/", hash: "" }, localStorage: new Store(),
  getComputedStyle: () => ({ getPropertyValue: () => "0" }), navigator: { locks }, addEventListener() {}, removeEventListener() {},
  load: (name) => import(new URL(name, folder)), hex: (bytes) => Buffer.from(bytes).toString("hex"),
};
for (const [name, value] of Object.entries(given)) Object.defineProperty(globalThis, name, { value, configurable: true });
globalThis.dither = await globalThis.load("dither.js");

for await (const line of createInterface({ input: process.stdin })) {
  let answer;
  try {
    const late = new Promise((_, reject) => setTimeout(() => reject(new Error("no answer")), PATIENCE));
    answer = { value: await Promise.race([(0, eval)(JSON.parse(line)), late]) };
  } catch (error) {
    answer = { error: String(error.stack ?? error) };
  }
  globalThis.fetch = fetch;
  globalThis.localStorage.clear();
  console.log(JSON.stringify(answer));
}
process.exit(); // what still waits for something does not keep it
