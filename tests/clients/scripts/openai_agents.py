# /// script
# requires-python = ">=3.11"
# dependencies = ["openai-agents==0.24.0"]
# ///
"""OpenAI's agents: a tool of two turns, a stream, a structured answer, both at once; of
chats, and of responses, which are their default."""

import asyncio
import os

import openai
from agents import (
    Agent,
    Model,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from cases import CITY, COUNT, PERSON, RESULT, say
from person import Person

MODEL = os.environ["MODEL"]
CALLED = []


@function_tool
def weather(city: str) -> str:
    """Return the weather in a city."""
    CALLED.extend(["weather", {"city": city}])
    return RESULT


async def cases(model: Model, which: str) -> None:
    """Run the cases."""
    agent = Agent(name="clerk", model=model, tools=[weather])
    CALLED.clear()
    answer = (await Runner.run(agent, CITY)).final_output
    say(f"tool{which}", [*CALLED, answer])
    stream = Runner.run_streamed(Agent(name="clerk", model=model), COUNT)
    deltas = [
        event.data.delta
        async for event in stream.stream_events()
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta"
    ]
    say(f"stream{which}", "".join(deltas))
    author = Agent(name="clerk", model=model, output_type=Person)
    say(f"structured{which}", (await Runner.run(author, PERSON)).final_output.model_dump())
    both = Agent(name="clerk", model=model, tools=[weather], output_type=Person)
    CALLED.clear()
    answer = (await Runner.run(both, CITY)).final_output.model_dump()
    say(f"tool and structured{which}", [*CALLED, answer])


async def main() -> None:
    """Run the cases of both APIs."""
    set_tracing_disabled(True)
    client = openai.AsyncOpenAI(base_url=os.environ["BASE_URL"], api_key="none")
    await cases(OpenAIChatCompletionsModel(MODEL, client), "")
    await cases(OpenAIResponsesModel(MODEL, client), " by responses")


asyncio.run(main())
