# /// script
# requires-python = ">=3.11"
# dependencies = ["openai-agents==0.24.0"]
# ///
"""OpenAI's agents: a tool of two turns, a stream, a structured answer."""

import asyncio
import os

import openai
import pydantic
from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from cases import CITY, COUNT, PERSON, RESULT, say


class Person(pydantic.BaseModel):
    """A person."""

    name: str
    age: int


CALLED = []


@function_tool
def weather(city: str) -> str:
    """Return the weather in a city."""
    CALLED.extend(["weather", {"city": city}])
    return RESULT


async def main() -> None:
    """Run the cases."""
    set_tracing_disabled(True)
    client = openai.AsyncOpenAI(base_url=os.environ["BASE_URL"], api_key="none")
    model = OpenAIChatCompletionsModel(os.environ["MODEL"], client)
    agent = Agent(name="clerk", model=model, tools=[weather])
    answer = (await Runner.run(agent, CITY)).final_output
    say("tool", [*CALLED, answer])
    stream = Runner.run_streamed(Agent(name="clerk", model=model), COUNT)
    deltas = [
        event.data.delta
        async for event in stream.stream_events()
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta"
    ]
    say("stream", "".join(deltas))
    author = Agent(name="clerk", model=model, output_type=Person)
    say("structured", (await Runner.run(author, PERSON)).final_output.model_dump())


asyncio.run(main())
