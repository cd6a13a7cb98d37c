// Live figures of the server, out of its metrics.

const at = (id) => document.getElementById(id);
const PERIOD_MS = 1000;
const POINTS = 120;
const FIGURES = ["rate", "per-pass", "acceptance", "predicted", "running"];
const rates = [];
let before = null;

// Sums of the samples of each metric, over all labels, and by source where it has one.
export function sums(text) {
  const found = {};
  for (const line of text.split("\n")) {
    const match = /^([a-z_]+)(\{.*\})? (\S+)$/.exec(line);
    if (!match) continue;
    const source = /source="([a-z]+)"/.exec(match[2] ?? "");
    for (const name of source ? [match[1], `${match[1]} ${source[1]}`] : [match[1]])
      found[name] = (found[name] ?? 0) + Number(match[3]);
  }
  return found;
}

function figure(id, value, digits, unit = "") {
  at(id).textContent = Number.isFinite(value) ? value.toFixed(digits) + unit : "–";
}

// The metrics as text; null while the server is not reachable.
async function metrics() {
  try {
    const response = await fetch("metrics");
    return response.ok ? await response.text() : null;
  } catch {
    return null;
  }
}

function show(now) {
  const since = (name, source = "") =>
    now[`outrider_${name}_total${source}`] - before[`outrider_${name}_total${source}`];
  if (before) {
    const rate = (1000 * since("generation_tokens")) / (now.at - before.at);
    figure("rate", rate, 1);
    if (since("verify_passes") > 0) {
      figure("per-pass", since("verified_tokens") / since("verify_passes"), 2);
      const drafted = since("spec_decode_num_draft_tokens");
      figure("acceptance", (100 * since("spec_decode_num_accepted_tokens")) / drafted, 0, " %");
    }
    const predicted = since("spec_decode_num_source_accepted_tokens", " prediction");
    if (predicted > 0) at("predictions").hidden = false;
    figure("predicted", (1000 * predicted) / (now.at - before.at), 1);
    rates.push(rate);
    rates.splice(0, rates.length - POINTS);
    const most = Math.max(...rates, 1);
    const points = rates.map((value, x) => `${x},${30 - (29 * value) / most}`);
    document.querySelector("polyline").setAttribute("points", points.join(" "));
  }
  figure("running", now.outrider_num_requests_running, 0);
}

async function look(reached) {
  const text = await metrics();
  at("unreachable").hidden = text !== null;
  if (text === null) {
    before = null;
    for (const id of FIGURES) figure(id, NaN);
    return;
  }
  if (before === null) reached();
  const now = { ...sums(text), at: performance.now() };
  show(now);
  before = now;
}

// Shows them every second; `reached` is called when the server answers, and answers again.
export async function keepLooking(reached) {
  for (;;) {
    if (!document.hidden) await look(reached);
    await new Promise((done) => setTimeout(done, PERIOD_MS));
  }
}
