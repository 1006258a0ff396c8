/**
 * Puts the pinned front-end libraries where Django serves them: `npm ci && npm run vendor`.
 *
 * Everything under static/vendor/ is made here and ignored by git. Libraries of many modules become
 * one file each; our own modules import them by relative path and are served without their comments.
 */
import { copyFile, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import path from "node:path";
import { build } from "esbuild";

const root = path.resolve(import.meta.dirname, "../..");
const out = path.join(root, "static", "vendor");
const require = createRequire(import.meta.url);

/** One bundle each: what it exports, and the types that `tsc` sees in its place. */
const BUNDLES = {
  htmx: `export { default as htmx } from "htmx.org";`,
  idiomorph: `export { Idiomorph } from "idiomorph";`,
  markdown: `export { default as MarkdownIt } from "markdown-it"; export { default as DOMPurify } from "dompurify";`,
  swagger: `export { default as SwaggerUI } from "swagger-ui-dist/swagger-ui-es-bundle.js";`,
  uplot: `export { default as uPlot } from "uplot";`,
};

const FONTS = [
  ["@fontsource-variable/ibm-plex-sans", "ibm-plex-sans-latin-wght-normal.woff2"],
  ["@fontsource-variable/ibm-plex-sans", "ibm-plex-sans-latin-ext-wght-normal.woff2"],
  ["@fontsource/ibm-plex-mono", "ibm-plex-mono-latin-400-normal.woff2"],
  ["@fontsource/ibm-plex-mono", "ibm-plex-mono-latin-ext-400-normal.woff2"],
  ["@fontsource/ibm-plex-mono", "ibm-plex-mono-latin-500-normal.woff2"],
];

await rm(out, { recursive: true, force: true });
await mkdir(path.join(out, "fonts"), { recursive: true });

// The package's own minified script is a sixth smaller than what esbuild makes of its module.
const MINIFIED = {
  htmx: `${await readFile(path.join(root, "node_modules/htmx.org/dist/htmx.min.js"), "utf8")}
export { htmx };`,
};

for (const [name, source] of Object.entries(BUNDLES)) {
  await build({
    stdin: { contents: MINIFIED[name] ?? source, resolveDir: root },
    outfile: path.join(out, `${name}.js`),
    bundle: true,
    format: "esm",
    target: "es2022",
    minify: true,
    legalComments: "eof",
    logLevel: "warning",
    logOverride: { "direct-eval": "silent" }, // htmx: our pages turn it off (allowEval)
    define: { "process.env.NODE_ENV": '"production"' },
  });
  await writeFile(path.join(out, `${name}.d.ts`), `${source}\n`);
}

for (const [name, file] of FONTS) {
  await copyFile(
    path.join(root, "node_modules", name, "files", file),
    path.join(out, "fonts", file),
  );
}

await build({
  entryPoints: [path.join(root, "node_modules", "swagger-ui-dist", "swagger-ui.css")],
  outfile: path.join(out, "swagger.css"),
  minify: true,
});

await build({
  entryPoints: [path.join(root, "node_modules", "uplot", "dist", "uPlot.min.css")],
  outfile: path.join(out, "uplot.css"),
  minify: true,
});

await writeFile(path.join(out, "icons.svg"), await sprite());

/** The icons that templates and elements name, as one sprite of symbols. */
async function sprite() {
  const names = JSON.parse(await readFile(path.join(import.meta.dirname, "icons.json"), "utf8"));
  const folder = path.join(path.dirname(require.resolve("lucide-static/package.json")), "icons");
  const symbols = await Promise.all(
    names.map(async (name) => {
      const svg = await readFile(path.join(folder, `${name}.svg`), "utf8");
      const body = svg.slice(svg.indexOf(">", svg.indexOf("<svg")) + 1, svg.lastIndexOf("</svg>"));
      return `<symbol id="${name}" viewBox="0 0 24 24">${body.replace(/\s*\n\s*/g, "")}</symbol>`;
    }),
  );
  return `<svg xmlns="http://www.w3.org/2000/svg">${symbols.join("\n")}</svg>\n`;
}
