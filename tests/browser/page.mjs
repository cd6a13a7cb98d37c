// Opens the page of a target in a headless Chromium as a user does, and prints what was seen as JSON.
//   node page.mjs http://127.0.0.1:8000/ [API key]
import chromium from "@sparticuz/chromium";
import puppeteer from "puppeteer-core";

const [, , base, key] = process.argv;
const QUESTION = "<b>Hello</b> & who are you?";
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
    // 401: asked before the key was typed; 400: the conversation may fill the small context.
    const expected = offline || /status of 40[01]/.test(said.text());
    if (["error", "warn"].includes(said.type()) && !expected) found.problems.push(said.text());
  });
  page.on("pageerror", (error) => found.problems.push(String(error)));
  page.on("request", (request) => {
    const url = request.url();
    if (!url.startsWith(base) && !url.startsWith("data:")) found.elsewhere.push(url);
    if (url.endsWith("/chat/completions")) {
      asked.push(JSON.parse(request.postData()).messages.map((one) => one.role).join(" "));
    }
  });
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
  await page.goto(base, { waitUntil: "load" });
  await page.click("form summary");
  if (key) {
    await ask();
    await page.waitForSelector("article.error", PATIENCE);
    await ended();
    found.withoutKey = await text("article.error");
    await page.type("#key", key);
    await send(); // the question that was refused
  } else {
    await ask();
  }
  await page.waitForFunction(() => document.querySelector("h1").textContent !== "Outrider", PATIENCE);
  found.model = await text("h1");
  await page.waitForSelector("article.assistant small", PATIENCE);
  found.question = await text("article.user");
  found.figures = await text("article.assistant small");
  found.answer = (await text("article.assistant")).slice(0, -found.figures.length);
  await ended();
  await page.waitForSelector("#tree rect.own", PATIENCE);
  found.tree = await page.$eval("#tree", (one) => ({
    box: one.getAttribute("viewBox"),
    nodes: one.querySelectorAll("rect").length,
    lines: one.querySelectorAll("line").length,
    kept: [...one.querySelectorAll("text.kept")].map((text) => text.textContent),
    own: [...one.querySelectorAll("text.own")].map((text) => text.textContent),
  }));
  await page.waitForFunction(() => /\d/.test(document.querySelector("#rate").textContent), PATIENCE);
  found.running = await text("#running");
  found.points = await page.$eval("polyline", (one) => one.getAttribute("points"));
  await ask(); // goes on
  await ended();
  await page.click("#reset");
  await ask();
  await page.click("#reset"); // during an answer
  await ended();
  await ask();
  await page.waitForSelector("article.assistant small", PATIENCE);
  await ended();
  offline = true;
  await page.setOfflineMode(true);
  await page.waitForFunction(
    () => [...document.querySelectorAll("dd")].every((one) => one.textContent === "–"),
    PATIENCE,
  );
} finally {
  await browser.close();
}
console.log(JSON.stringify(found, null, 1));
