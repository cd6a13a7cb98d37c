// AI SDK: a tool of two turns, a stream, a structured answer, both at once; of chats, and
// of responses, which are the default of its provider for OpenAI.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Output, generateText, isStepCount, streamText, tool } from "ai";
import { CITY, COUNT, City, MODEL, PERSON, Person, RESULT, URL, say } from "./cases.mjs";

const chats = createOpenAICompatible({
  name: "here",
  baseURL: URL,
  supportsStructuredOutputs: true,
});
const responses = createOpenAI({ baseURL: URL, apiKey: "none" });
const sendsItems = { openai: { store: false } }; // by default it names those of earlier turns

async function cases(asked, which) {
  const called = [];
  const weather = tool({
    description: "The weather in a city.",
    inputSchema: City,
    execute: async (given) => {
      called.push("weather", given);
      return RESULT;
    },
  });
  const agent = { ...asked, tools: { weather }, stopWhen: isStepCount(3) };
  const { text } = await generateText({ ...agent, prompt: CITY });
  say(`tool${which}`, [...called, text]);

  const pieces = [];
  for await (const piece of streamText({ ...asked, prompt: COUNT }).textStream) pieces.push(piece);
  say(`stream${which}`, pieces.join(""));

  const output = Output.object({ schema: Person });
  say(`structured${which}`, (await generateText({ ...asked, prompt: PERSON, output })).output);

  called.length = 0;
  const both = await generateText({ ...agent, prompt: CITY, output });
  say(`tool and structured${which}`, [...called, both.output]);
}

await cases({ model: chats(MODEL) }, "");
await cases({ model: responses(MODEL), providerOptions: sendsItems }, " by responses");
