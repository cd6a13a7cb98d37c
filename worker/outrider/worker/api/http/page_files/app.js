// A chat with the model that this server serves. A conversation outlives a reload of its tab; a key
// does not.

import { keepLooking } from "./figures.js";
import { blocks } from "./markdown.js";
import { draw } from "./tree.js";

const at = (id) => document.getElementById(id);
const KEPT = "outrider";
const NEAR_THE_END = 40; // pixels: whoever is further up reads, and is not dragged down
// Questions and answers alternate, as strict templates want it. An answer has `note`, what it cost.
let turns = [];
let asking = null; // the AbortController of the answer on its way
let growing = null; // that answer, and the conversation that it belongs to

function keep() {
  const cut = growing?.own === turns && growing.turn.content ? [{ ...growing.turn, note: "cut off" }] : [];
  const fields = Object.fromEntries(["system", "temperature"].map((id) => [id, at(id).value]));
  sessionStorage.setItem(KEPT, JSON.stringify({ turns: [...turns, ...cut], fields }));
}

function restore() {
  const kept = JSON.parse(sessionStorage.getItem(KEPT) ?? "null");
  if (!kept) return;
  turns = kept.turns;
  if (turns.at(-1)?.role === "user") at("question").value = turns.pop().content; // never answered
  for (const [id, value] of Object.entries(kept.fields)) at(id).value = value;
  turns.forEach(showTurn);
  end(true)();
}

function headers() {
  const key = at("key").value;
  return { "Content-Type": "application/json", ...(key && { Authorization: `Bearer ${key}` }) };
}

function article(kind, ...content) {
  const made = document.createElement("article");
  made.className = kind;
  made.append(...content);
  at("talk").append(made);
  return made;
}

function showTurn(turn) {
  if (turn.role === "user") return article("user", turn.content);
  const made = article("assistant");
  fill(made, turn);
  return made;
}

function fill(made, turn) {
  const note = document.createElement("small");
  note.textContent = turn.note ?? "";
  made.replaceChildren(...blocks(turn.content), ...(turn.note ? [note] : []));
}

// Shows the end of the talk to those who were there, or to whoever has just asked.
function end(always) {
  const talk = at("talk");
  const below = talk.scrollHeight - talk.scrollTop - talk.clientHeight;
  return () => {
    if (always || below < NEAR_THE_END) talk.scrollTop = talk.scrollHeight;
  };
}

function body(own) {
  const system = at("system").value.trim();
  const told = system ? [{ role: "system", content: system }] : [];
  return JSON.stringify({
    messages: [...told, ...own.map(({ role, content }) => ({ role, content }))],
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
    const found = (rest + value).split("\n\n");
    rest = found.pop();
    for (const block of found) {
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

// Calls `show` with the newest of the values that come between two pictures.
function eachPicture(show) {
  let newest = null;
  return (value) => {
    if (!newest) {
      requestAnimationFrame(() => {
        const last = newest;
        newest = null;
        show(...last);
      });
    }
    newest = [value];
  };
}

const showTree = eachPicture((tree) => {
  at("tree-shown").hidden = false;
  draw(at("tree"), tree);
});

class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// Asks what `own` ends with; the answer grows in `turn` and is shown in `made`.
async function answer(own, turn, made) {
  const options = { method: "POST", headers: headers(), body: body(own), signal: asking.signal };
  const response = await fetch("v1/chat/completions", options);
  if (!response.ok) throw new Refused(response.status, (await response.json()).error.message);
  const show = eachPicture(() => {
    const toEnd = end();
    fill(made, turn);
    toEnd();
    keep();
  });
  for await (const event of events(response)) {
    if (event.error) throw new Refused(0, event.error.message);
    turn.content += event.choices[0]?.delta?.content ?? "";
    if (event.outrider?.tree) showTree(event.outrider.tree);
    if (event.outrider?.choices) turn.note = words(event.outrider.choices[0]);
    show();
  }
}

function failed(error) {
  if (error.name === "AbortError") return;
  const lost = error instanceof TypeError; // the browser's words for no connection
  article("error", lost ? "The server is not reachable. Ask again when it is back." : error.message);
  if (error.status === 401) {
    at("options").open = true;
    at("key").focus();
  }
}

function busy(now) {
  at("talk").setAttribute("aria-busy", now);
  at("send").hidden = now;
  at("stop").hidden = !now;
  at("again").hidden = now || turns.at(-1)?.role !== "assistant";
}

// Asks the last question of the conversation, which is shown already.
async function ask(question) {
  const own = turns; // "Begin anew" puts others in their place
  const turn = { role: "assistant", content: "" };
  for (const old of document.querySelectorAll("article.error")) old.remove();
  const made = article("assistant");
  end(true)();
  asking = new AbortController();
  growing = { own, turn };
  keep();
  busy(true);
  let problem = null;
  try {
    await answer(own, turn, made);
  } catch (error) {
    problem = error;
  }
  asking = growing = null;
  if (problem && turn.content) turn.note = problem.name === "AbortError" ? "stopped" : "cut off";
  if (!problem || turn.content) {
    own.push(turn);
    fill(made, turn);
  } else {
    own.pop(); // never answered: it can be asked again
    made.previousElementSibling?.remove();
    made.remove();
    if (own === turns) at("question").value ||= question;
  }
  busy(false);
  if (own === turns) keep();
  at("question").focus();
  if (problem) failed(problem);
  end()();
}

function send(event) {
  event?.preventDefault();
  const question = at("question").value.trim();
  if (!question || asking) return;
  at("question").value = "";
  turns.push({ role: "user", content: question });
  showTurn(turns.at(-1));
  ask(question);
}

function again() {
  if (asking || turns.at(-1)?.role !== "assistant") return;
  turns.pop();
  [...document.querySelectorAll("article.assistant")].at(-1).remove();
  ask(turns.at(-1).content);
}

function reset() {
  turns = [];
  asking?.abort();
  at("talk").replaceChildren();
  busy(asking !== null);
  keep();
}

async function name() {
  const response = await fetch("v1/models", { headers: headers() }).catch(() => null);
  if (response?.ok) at("model").textContent = (await response.json()).data[0].id;
}

at("form").addEventListener("submit", send);
at("stop").addEventListener("click", () => asking?.abort());
at("again").addEventListener("click", again);
at("reset").addEventListener("click", reset);
at("options").addEventListener("change", keep);
at("key").addEventListener("change", name);
at("question").addEventListener("keydown", (event) => {
  const ends = event.key === "Enter" && !event.shiftKey;
  if (ends && !event.isComposing) send(event); // Enter also ends a composed character
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") asking?.abort();
});
restore();
busy(false);
at("question").focus();
keepLooking(name);
