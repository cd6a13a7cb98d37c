# /// script
# requires-python = ">=3.11"
# dependencies = ["openai==3.57.0"]
# ///
"""openai for Python: a tool of two turns, a stream, a structured answer."""

import json
import os

import openai
from cases import CITY, COUNT, PERSON, RESULT, WEATHER, say
from person import Person

client = openai.OpenAI(base_url=os.environ["BASE_URL"], api_key="none")
MODEL = os.environ["MODEL"]

messages = [{"role": "user", "content": CITY}]
first = client.chat.completions.create(model=MODEL, messages=messages, tools=[WEATHER])
call = first.choices[0].message.tool_calls[0]
messages += [
    first.choices[0].message,
    {"role": "tool", "tool_call_id": call.id, "content": RESULT},
]
last = client.chat.completions.create(model=MODEL, messages=messages, tools=[WEATHER])
arguments = json.loads(call.function.arguments)
say("tool", [call.function.name, arguments, last.choices[0].message.content])

asked = {"model": MODEL, "messages": [{"role": "user", "content": COUNT}]}
with client.chat.completions.stream(**asked) as stream:
    say("stream", "".join(event.delta for event in stream if event.type == "content.delta"))

asked["messages"] = [{"role": "user", "content": PERSON}]
parsed = client.chat.completions.parse(**asked, response_format=Person)
say("structured", parsed.choices[0].message.parsed.model_dump())
