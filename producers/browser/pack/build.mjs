// Makes dist/: one small module, and its declarations. What is readable stays in this repository.

import { execFileSync } from "node:child_process";
import { readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { build } from "esbuild";
import { minify } from "terser";
import { INTERNAL } from "./internal_names.mjs";

const OUT = "dist/dither.js";
// Functions that the sources call often: as variables of globals.js they become one letter each.
const OFTEN = [
  "Array.from", "Array.isArray", "Math.ceil", "Math.floor", "Math.max", "Math.min",
  "Number.isInteger", "Number.isSafeInteger", "Object.entries", "Object.keys",
];

rmSync("dist", { recursive: true, force: true });
await build({
  entryPoints: ["device/device.js"],
  outfile: OUT,
  inject: ["pack/globals.js"],
  define: Object.fromEntries(OFTEN.map((name) => [name, name.replace(".", "_")])),
  mangleProps: new RegExp(`^(${INTERNAL.join("|")})$`),
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  logLevel: "warning",
});
const { code } = await minify(readFileSync(OUT, "utf8"), {
  module: true,
  compress: { passes: 3, ecma: 2020, keep_fargs: false, unsafe: true, unsafe_arrows: true },
});
writeFileSync(OUT, code);

execFileSync("tsc", ["--project", ".", "--removeComments"], { stdio: "inherit" });
const ENTRY = "dist/device/device.d.ts";
/** @type {Set<string>} What the entry exports from other modules. */
const exported = new Set();
const needed = new Set([ENTRY]); // in this order: the entry, and what it refers to
const parts = [];
for (const file of needed) {
  const declared = readFileSync(file, "utf8");
  for (const [, path] of declared.matchAll(/(?:from |import\()"(\.[^"]+)\.js"/g)) {
    needed.add(join(dirname(file), `${path}.d.ts`));
  }
  const own = declared
    .replaceAll(/^ +/gm, "")
    .replaceAll(/^import .*;\n/gm, "")
    .replaceAll(/import\("[^"]+"\)\./g, "");
  parts.push(file === ENTRY ? own : own.replaceAll(/^export (\{.*\n)?/gm, ""));
}
const all = parts
  .join("")
  .replaceAll(/^(?:export )?type (\w+) = \1;\n/gm, (_, name) => (exported.add(name), ""))
  .replaceAll(/^export \{(.*)\} from ".*";\n/gm, (_, names) => {
    for (const name of names.match(/\w+/g)) exported.add(name);
    return "";
  });
for (const found of readdirSync("dist")) {
  if (join("dist", found) !== OUT) rmSync(join("dist", found), { recursive: true });
}
writeFileSync("dist/dither.d.ts", `${all}export { ${[...exported].join(", ")} };\n`);
