# /// script
# requires-python = ">=3.11"
# dependencies = ["litellm==1.110.2"]
# ///
"""LiteLLM: a tool of two turns, a stream, a structured answer."""

import json
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it asks the net for prices

import litellm
from cases import CITY, COUNT, PERSON, RESULT, WEATHER, say
from person import Person


def ask(text: str | list, **more):
    """Return what the model answers."""
    return litellm.completion(
        model=f"openai/{os.environ['MODEL']}",
        api_base=os.environ["BASE_URL"],
        api_key="none",
        messages=[{"role": "user", "content": text}] if isinstance(text, str) else text,
        **more,
    )


first = ask(CITY, tools=[WEATHER]).choices[0].message
call = first.tool_calls[0]
messages = [
    {"role": "user", "content": CITY},
    first.model_dump(),
    {"role": "tool", "tool_call_id": call.id, "content": RESULT},
]
last = ask(messages, tools=[WEATHER]).choices[0].message.content
say("tool", [call.function.name, json.loads(call.function.arguments), last])
pieces = ask(COUNT, stream=True)
say("stream", "".join(piece.choices[0].delta.content or "" for piece in pieces))
say("structured", json.loads(ask(PERSON, response_format=Person).choices[0].message.content))
