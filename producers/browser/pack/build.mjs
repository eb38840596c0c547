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
  compress: { passes: 3, ecma: 2020, keep_fargs: false, unsafe_arrows: true },
});
writeFileSync(OUT, code);

execFileSync("tsc", ["--project", ".", "--removeComments"], { stdio: "inherit" });
/** @type {Set<string>} Declarations that an application needs. */
const needed = new Set(["dist/device/device.d.ts"]);
for (const file of needed) {
  const declared = readFileSync(file, "utf8").replaceAll(/^ +/gm, "");
  writeFileSync(file, declared);
  for (const [, path] of declared.matchAll(/(?:from |import\()"(\.[^"]+)\.js"/g)) {
    needed.add(join(dirname(file), `${path}.d.ts`));
  }
}
for (const found of readdirSync("dist", { recursive: true, encoding: "utf8" })) {
  const file = join("dist", found);
  if (file.endsWith(".d.ts") && !needed.has(file)) rmSync(file);
}
