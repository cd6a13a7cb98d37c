// Opens the page of a target in a headless Chromium as a user does, and prints what was seen as JSON.
//   node page.mjs http://127.0.0.1:8000/ API-KEY [FOLDER FOR SCREENSHOTS]
import chromium from "@sparticuz/chromium";
import puppeteer from "puppeteer-core";

const [, , base, key, pictures] = process.argv;
const QUESTION = "<b>Hello</b> & who are you?";
const MARKDOWN = [
  "# Stack <i>of</i> things",
  "Uses `append` and **pop**, *both* O(1); 2 * 3 * 4 and snake_case_name stay.",
  "1. first\n2. second\n\n- one\n- <script>alert(1)</script>",
  "```python\nclass Stack:\n    pass  # **not bold** <b>\n```",
  "```\nnever closed",
].join("\n\n");
const PATIENCE = { timeout: 120_000 };
const asked = []; // the roles of each question's messages
const found = { problems: [], elsewhere: [], asked };
let offline = false;
const browser = await puppeteer.launch({
  args: [...chromium.args, "--no-sandbox", "--no-proxy-server"],
  executablePath: await chromium.executablePath(),
  headless: "shell",
});
try {
  const page = await browser.newPage();
  const text = (selector) => page.$eval(selector, (one) => one.textContent);
  page.on("console", (said) => {
    const expected = offline || /status of 401/.test(said.text()); // asked before the key was typed
    if (["error", "warn"].includes(said.type()) && !expected) found.problems.push(said.text());
  });
  page.on("pageerror", (error) => found.problems.push(String(error)));
  page.on("request", (request) => {
    const url = request.url();
    if (!url.startsWith(base) && !url.startsWith("data:")) found.elsewhere.push(url);
    if (!url.endsWith("/chat/completions")) return request.continue();
    const body = JSON.parse(request.postData());
    asked.push(body.messages.map((one) => one.role).join(" "));
    request.continue({ postData: JSON.stringify({ ...body, max_tokens: 24 }) });
  });
  await page.setRequestInterception(true);
  const send = async () => {
    await page.focus("#question");
    await page.keyboard.press("Enter");
  };
  const ask = async () => {
    await page.$eval("#question", (one) => (one.value = "")); // what was refused is there again
    await page.type("#question", QUESTION);
    await send();
  };
  const ended = () => page.waitForFunction(() => !document.querySelector("#send").hidden, PATIENCE);
  const focus = () => page.evaluate(() => document.activeElement.id);
  const look = async (name, { width = 1000, dark = false } = {}) => {
    if (!pictures) return;
    await page.setViewport({ width, height: 700 });
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: dark ? "dark" : "light" }]);
    await page.screenshot({ path: `${pictures}/${name}.png` });
  };
  await page.goto(base, { waitUntil: "load" });
  found.focusAtFirst = await focus();
  await look("begin");
  await ask();
  await page.waitForSelector("article.error", PATIENCE);
  await ended();
  found.withoutKey = await text("article.error");
  found.focusWithoutKey = await focus();
  await look("key");
  await page.keyboard.type(key);
  await send(); // the question that was refused
  await page.waitForFunction(() => document.querySelector("#model").textContent, PATIENCE);
  found.model = await text("#model");
  found.errorsLeft = await page.$$eval("article.error", (all) => all.length);
  await page.waitForSelector("article.assistant small", PATIENCE);
  found.question = await text("article.user");
  found.figures = await text("article.assistant small");
  found.answer = (await text("article.assistant")).slice(0, -found.figures.length);
  await ended();
  await page.waitForSelector("#tree rect.own", PATIENCE);
  found.tree = await page.$eval("#tree", (one) => ({
    box: one.getAttribute("viewBox"),
    nodes: one.querySelectorAll("rect").length,
    edges: one.querySelectorAll("path").length,
    crossed: [...one.querySelectorAll("path")].filter((path) => {
      const boxes = [...one.querySelectorAll("rect")].map((rect) => rect.getBBox());
      const points = Array.from({ length: 101 }, (_, n) => path.getPointAtLength((n * path.getTotalLength()) / 100));
      const inside = (box, { x, y }) =>
        x > box.x + 1 && x < box.x + box.width - 1 && y > box.y && y < box.y + box.height;
      return boxes.some((box) => points.some((point) => inside(box, point)));
    }).length,
    label: one.getAttribute("aria-label"),
    kept: [...one.querySelectorAll("text.kept")].map((text) => text.textContent),
    own: [...one.querySelectorAll("text.own")].map((text) => text.textContent),
  }));
  await page.waitForFunction(() => /\d/.test(document.querySelector("#rate").textContent), PATIENCE);
  found.running = await text("#running");
  found.points = await page.$eval("polyline", (one) => one.getAttribute("points"));
  await look("light");
  await look("dark", { dark: true });
  await look("phone", { width: 390 });
  await ask(); // goes on
  await ended();
  const talk = () => page.$$eval("article", (all) => all.map((one) => one.textContent));
  const before = await talk();
  await page.reload({ waitUntil: "load" });
  found.keptOverReload = JSON.stringify(await talk()) === JSON.stringify(before);
  await page.click("#form summary");
  await page.type("#key", key);
  await page.click("#again");
  await ended();
  found.articlesAfterAgain = (await talk()).length - before.length;
  found.markdown = await page.evaluate(async (text) => {
    const { blocks } = await import("/page/markdown.js");
    const holder = document.createElement("div");
    holder.append(...blocks(text));
    for (const button of holder.querySelectorAll("button")) button.remove();
    return holder.innerHTML;
  }, MARKDOWN);
  await page.evaluate(async (text) => {
    const { blocks } = await import("/page/markdown.js");
    document.querySelector("article.assistant").replaceChildren(...blocks(text));
    document.querySelector("#talk").scrollTop = 0;
  }, MARKDOWN);
  await look("markdown");
  await page.setViewport({ width: 1000, height: 400 });
  await page.evaluate(() => {
    const talk = document.querySelector("#talk");
    talk.prepend(...Array.from({ length: 40 }, () => document.createElement("p")));
  });
  await ask();
  await page.evaluate(() => (document.querySelector("#talk").scrollTop = 100));
  await ended();
  found.scrolledUp = await page.$eval("#talk", (one) => one.scrollTop);
  await page.click("#reset");
  await ask();
  await page.click("#reset"); // during an answer
  await ended();
  await ask();
  await page.keyboard.press("Escape"); // as soon as it is asked, or a little later
  await ended();
  found.afterEscape = await page.$$eval("article.error", (all) => all.length);
  await page.click("#reset");
  await ask();
  await page.waitForSelector("article.assistant small", PATIENCE);
  await ended();
  offline = true;
  await page.setOfflineMode(true);
  await page.waitForFunction(() => !document.querySelector("#unreachable").hidden, PATIENCE);
  await ask();
  await page.waitForSelector("article.error", PATIENCE);
  found.offline = await text("article.error");
  found.questionKept = await page.$eval("#question", (one) => one.value);
  await page.waitForFunction(
    () => [...document.querySelectorAll("dd")].every((one) => one.textContent === "–"),
    PATIENCE,
  );
  await page.setOfflineMode(false);
  await page.waitForFunction(() => document.querySelector("#unreachable").hidden, PATIENCE);
} finally {
  await browser.close();
}
console.log(JSON.stringify(found, null, 1));
