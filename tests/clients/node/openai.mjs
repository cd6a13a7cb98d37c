// openai for Node: a tool of two turns by runTools, a stream, a structured answer.
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";
import { CITY, COUNT, City, MODEL, PERSON, Person, RESULT, URL, say } from "./cases.mjs";

const client = new OpenAI({ baseURL: URL, apiKey: "none" });
const user = (content) => ({ model: MODEL, messages: [{ role: "user", content }] });

const called = [];
const weather = (given) => {
  called.push("weather", given);
  return RESULT;
};
const runner = client.chat.completions.runTools({
  ...user(CITY),
  tools: [
    {
      type: "function",
      function: {
        name: "weather",
        function: weather,
        parse: JSON.parse,
        parameters: z.toJSONSchema(City),
      },
    },
  ],
});
const answer = await runner.finalContent();
say("tool", [...called, answer]);

const pieces = [];
for await (const piece of await client.chat.completions.create({ ...user(COUNT), stream: true }))
  pieces.push(piece.choices[0]?.delta?.content ?? "");
say("stream", pieces.join(""));

const format = { response_format: zodResponseFormat(Person, "person") };
const parsed = await client.chat.completions.parse({ ...user(PERSON), ...format });
say("structured", parsed.choices[0].message.parsed);
