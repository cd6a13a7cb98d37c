// Opens the site from its folder in a headless Chromium, and prints what was seen as JSON.
//   node site.mjs SITE [FOLDER FOR SCREENSHOTS]
import chromium from "@sparticuz/chromium";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import puppeteer from "puppeteer-core";

const [, , site, pictures] = process.argv;
const PATIENCE = { timeout: 60_000 };
const found = { problems: [], elsewhere: [], cut: {}, first: "", diagrams: 0 };
const browser = await puppeteer.launch({
  args: [...chromium.args, "--no-sandbox", "--no-proxy-server"],
  executablePath: await chromium.executablePath(),
  headless: "shell",
});
const open = async (page, path) =>
  page.goto(`file://${join(site, path)}`, { waitUntil: "load", ...PATIENCE });
try {
  const page = await browser.newPage();
  await page.setViewport({ width: 1280, height: 900 });
  page.on("pageerror", (error) => found.problems.push(String(error)));
  page.on("request", (request) => {
    if (/^https?:/.test(request.url())) found.elsewhere.push(request.url());
  });
  const started = readdirSync(join(site, "get-started")).map((name) => `get-started/${name}`);
  for (const path of ["index.html", "how-to/install.html", ...started]) {
    await open(page, path);
    found.cut[path] = await page.$$eval(".md-typeset table, .md-typeset pre > code", (all) =>
      all
        .map((one) => (one.tagName === "TABLE" ? one.parentElement : one))
        .filter((one) => one.scrollWidth > one.clientWidth + 1)
        .map((one) => one.textContent.trim().slice(0, 60)),
    );
    if (pictures) await page.screenshot({ path: join(pictures, path.replace(/\W/g, "-") + ".png") });
  }
  await open(page, "index.html");
  await page.click(".md-search__input");
  await page.type(".md-search__input", "api key");
  await page.waitForSelector(".md-search-result__link", PATIENCE);
  found.first = await page.$eval(".md-search-result__link", (one) => one.getAttribute("href"));
  await open(page, "concepts/architecture.html");
  await page.waitForFunction(() => document.querySelector("div.mermaid")?.offsetHeight > 40, PATIENCE);
  found.diagrams = (await page.$$("div.mermaid")).length;
  if (pictures) {
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "dark" }]);
    for (const path of ["concepts/architecture.html", "concepts/where-it-pays.html"]) {
      await open(page, path);
      await page.screenshot({ path: join(pictures, path.replace(/\W/g, "-") + ".png"), fullPage: true });
    }
  }
} finally {
  await browser.close();
}
console.log(JSON.stringify(found, null, 1));
