# /// script
# requires-python = ">=3.11"
# dependencies = ["pydantic-ai-slim[openai]==2.68.0"]
# ///
"""Pydantic AI: a tool of two turns, a stream, a structured answer."""

import asyncio
import os

from cases import CITY, COUNT, PERSON, RESULT, say
from person import Person
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

CALLED = []


def weather(city: str) -> str:
    """Return the weather in a city."""
    CALLED.extend(["weather", {"city": city}])
    return RESULT


async def main() -> None:
    """Run the cases."""
    provider = OpenAIProvider(base_url=os.environ["BASE_URL"], api_key="none")
    model = OpenAIChatModel(os.environ["MODEL"], provider=provider)
    answer = (await Agent(model, tools=[weather]).run(CITY)).output
    say("tool", [*CALLED, answer])
    async with Agent(model).run_stream(COUNT) as stream:
        deltas = [delta async for delta in stream.stream_text(delta=True, debounce_by=None)]
    say("stream", "".join(deltas))
    say("structured", (await Agent(model, output_type=Person).run(PERSON)).output.model_dump())


asyncio.run(main())
