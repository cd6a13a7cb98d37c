// The site's own search: node site_search.mjs SITE QUERY… prints the pages found for each query.
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { runInThisContext } from "node:vm";

const [site, ...queries] = process.argv.slice(2);
const SETUP = 0, READY = 1, QUERY = 2, RESULT = 3;
const workers = join(site, "assets/javascripts/workers");
const [worker] = readdirSync(workers).filter((name) => /^search\..*\.js$/.test(name));

const listeners = [];
let answer;
globalThis.self = globalThis;
globalThis.addEventListener = (kind, listener) => kind === "message" && listeners.push(listener);
globalThis.postMessage = (message) => answer(message);
runInThisContext(readFileSync(join(workers, worker), "utf8"));

const ask = (type, data, expected) =>
  new Promise((resolve, reject) => {
    answer = (message) =>
      message.type === expected ? resolve(message.data) : reject(new Error(JSON.stringify(message)));
    for (const listener of listeners) listener({ data: { type, data } });
  });

const index = JSON.parse(readFileSync(join(site, "search/search_index.json"), "utf8"));
await ask(SETUP, { ...index, options: { suggest: false } }, READY);
for (const query of queries) {
  const { items } = await ask(QUERY, query, RESULT);
  // A page comes with the sections of it that fit; the page itself has no anchor.
  console.log(JSON.stringify({ [query]: items.map((sections) => sections[0].location.split("#")[0]) }));
}
