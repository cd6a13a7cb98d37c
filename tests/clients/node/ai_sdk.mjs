// AI SDK: a tool of two turns, a stream, a structured answer.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Output, generateText, isStepCount, streamText, tool } from "ai";
import { CITY, COUNT, City, MODEL, PERSON, Person, RESULT, URL, say } from "./cases.mjs";

const here = createOpenAICompatible({
  name: "here",
  baseURL: URL,
  supportsStructuredOutputs: true,
});
const model = here(MODEL);

const called = [];
const weather = tool({
  description: "The weather in a city.",
  inputSchema: City,
  execute: async (given) => {
    called.push("weather", given);
    return RESULT;
  },
});
const limit = isStepCount(3);
const { text } = await generateText({ model, prompt: CITY, tools: { weather }, stopWhen: limit });
say("tool", [...called, text]);

const pieces = [];
for await (const piece of streamText({ model, prompt: COUNT }).textStream) pieces.push(piece);
say("stream", pieces.join(""));

const output = Output.object({ schema: Person });
say("structured", (await generateText({ model, prompt: PERSON, output })).output);
