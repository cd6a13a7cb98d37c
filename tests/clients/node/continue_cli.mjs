// Continue's command: an edit of a file by its own tool, in two turns.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { BEFORE, EDIT, MODEL, URL, say } from "./cases.mjs";

const folder = mkdtempSync(join(tmpdir(), "continue-"));
const file = join(folder, "hello.py");
const config = join(folder, "config.yaml");
const model = {
  name: MODEL,
  provider: "openai",
  model: MODEL,
  apiBase: URL,
  apiKey: "none",
  roles: ["chat"],
  capabilities: ["tool_use"],
};
const whole = { name: "here", version: "1.0.0", schema: "v1", models: [model] };
writeFileSync(file, BEFORE);
writeFileSync(config, JSON.stringify(whole)); // JSON is YAML
const command = join(import.meta.dirname, "node_modules/.bin/cn");
const env = { ...process.env, HOME: folder, CONTINUE_TELEMETRY_ENABLED: "0" };
const said = execFileSync(command, ["--config", config, "--auto", "-p", EDIT], {
  cwd: folder,
  env,
  encoding: "utf8",
});
say("answer", said.trim());
say("file", readFileSync(file, "utf8"));
