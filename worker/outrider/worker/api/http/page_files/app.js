// A chat with the model that this server serves, and what its metrics say meanwhile.
// Texts of the model are only ever text: nothing of it is read as HTML.

import { draw } from "./tree.js";

const at = (id) => document.getElementById(id);
const PERIOD_MS = 1000;
const POINTS = 120;
const FIGURES = ["rate", "per-pass", "acceptance", "running"];
let turns = []; // of the conversation: users and answers alternate, as strict templates want it
let asking = null; // the AbortController of the answer on its way

function headers() {
  const key = at("key").value;
  return { "Content-Type": "application/json", ...(key && { Authorization: `Bearer ${key}` }) };
}

function show(kind, text) {
  const article = document.createElement("article");
  article.className = kind;
  article.textContent = text;
  at("talk").append(article);
  article.scrollIntoView({ block: "end" });
  return article;
}

function body(own) {
  const system = at("system").value.trim();
  const told = system ? [{ role: "system", content: system }] : [];
  return JSON.stringify({
    messages: [...told, ...own],
    temperature: Number(at("temperature").value),
    speculate: at("draft").checked,
    stream: true,
    draft_tree: at("tree-shown").open,
  });
}

async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const data = block.replace(/^data: /, "");
      if (data !== "[DONE]") yield JSON.parse(data);
    }
  }
}

export function words(figures) {
  const said = [`${figures.completion_tokens} tokens`];
  const after = figures.completion_tokens - 1;
  if (figures.decode_seconds > 0) said.push(`${(after / figures.decode_seconds).toFixed(1)} tokens/s`);
  if (figures.draft_rows > 0) {
    said.push(`acceptance ${((100 * figures.accepted_rows) / figures.draft_rows).toFixed(0)} %`);
    said.push(`${(after / figures.passes).toFixed(2)} tokens per pass`);
  }
  return said.join(" · ");
}

let drawn = null; // the newest tree, which the next picture shows
function showTree(tree) {
  if (!drawn) {
    requestAnimationFrame(() => {
      draw(at("tree"), drawn);
      drawn = null;
    });
  }
  drawn = tree;
}

// Asks what `own` ends with; the answer grows in `turn` and in the article.
async function answer(own, turn, article) {
  const options = { method: "POST", headers: headers(), body: body(own), signal: asking.signal };
  const response = await fetch("v1/chat/completions", options);
  if (!response.ok) throw new Error((await response.json()).error.message);
  const shown = document.createTextNode("");
  article.append(shown);
  for await (const event of events(response)) {
    if (event.error) throw new Error(event.error.message);
    turn.content += event.choices[0]?.delta?.content ?? "";
    shown.data = turn.content;
    if (event.outrider?.tree) showTree(event.outrider.tree);
    if (event.outrider?.choices) {
      const small = document.createElement("small");
      small.textContent = words(event.outrider.choices[0]);
      article.append(small);
    }
    article.scrollIntoView({ block: "end" });
  }
}

async function send(event) {
  event.preventDefault();
  const question = at("question").value.trim();
  if (!question || asking) return;
  at("question").value = "";
  const own = turns; // "Begin anew" puts others in their place
  const turn = { role: "assistant", content: "" };
  own.push({ role: "user", content: question });
  const articles = [show("user", question), show("assistant", "")];
  asking = new AbortController();
  at("send").hidden = true;
  at("stop").hidden = false;
  try {
    await answer(own, turn, articles[1]);
    own.push(turn);
  } catch (error) {
    if (turn.content) {
      own.push(turn); // as far as it came
    } else {
      own.pop(); // never answered: it can be asked again
      for (const article of articles) article.remove();
      if (own === turns) at("question").value ||= question;
    }
    if (error.name !== "AbortError") show("error", error.message);
  } finally {
    asking = null;
    at("send").hidden = false;
    at("stop").hidden = true;
    at("question").focus();
  }
}

// Sums of the samples of each metric, over all labels.
export function sums(text) {
  const found = {};
  for (const line of text.split("\n")) {
    const match = /^([a-z_]+)(?:\{.*\})? (\S+)$/.exec(line);
    if (match) found[match[1]] = (found[match[1]] ?? 0) + Number(match[2]);
  }
  return found;
}

let before = null;
const rates = [];

function figure(id, value, digits, unit = "") {
  at(id).textContent = Number.isFinite(value) ? value.toFixed(digits) + unit : "–";
}

// The metrics as text; null while the server is gone.
async function metrics() {
  try {
    const response = await fetch("metrics");
    return response.ok ? await response.text() : null;
  } catch {
    return null;
  }
}

function showFigures(now) {
  const since = (name) => now[`outrider_${name}_total`] - before[`outrider_${name}_total`];
  if (before) {
    const rate = (1000 * since("generation_tokens")) / (now.at - before.at);
    figure("rate", rate, 1);
    if (since("verify_passes") > 0) {
      figure("per-pass", since("verified_tokens") / since("verify_passes"), 2);
      const drafted = since("spec_decode_num_draft_tokens");
      figure("acceptance", (100 * since("spec_decode_num_accepted_tokens")) / drafted, 0, " %");
    }
    rates.push(rate);
    rates.splice(0, rates.length - POINTS);
    const most = Math.max(...rates, 1);
    const points = rates.map((value, x) => `${x},${30 - (29 * value) / most}`);
    document.querySelector("polyline").setAttribute("points", points.join(" "));
  }
  figure("running", now.outrider_num_requests_running, 0);
}

async function look() {
  const text = await metrics();
  if (text === null) {
    before = null;
    for (const id of FIGURES) figure(id, NaN);
    return;
  }
  const now = { ...sums(text), at: performance.now() };
  showFigures(now);
  before = now;
}

async function keepLooking() {
  for (;;) {
    if (!document.hidden) await look();
    await new Promise((done) => setTimeout(done, PERIOD_MS));
  }
}

async function name() {
  const response = await fetch("v1/models", { headers: headers() });
  if (response.ok) at("model").textContent = (await response.json()).data[0].id;
}

at("form").addEventListener("submit", send);
at("stop").addEventListener("click", () => asking?.abort());
at("key").addEventListener("change", name);
at("reset").addEventListener("click", () => {
  turns = [];
  asking?.abort();
  at("talk").replaceChildren();
});
at("question").addEventListener("keydown", (event) => {
  const ends = event.key === "Enter" && !event.shiftKey;
  if (ends && !event.isComposing) send(event); // Enter also ends a composed character
});
name();
keepLooking();
