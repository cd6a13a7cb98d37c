# /// script
# requires-python = ">=3.11"
# dependencies = ["openai==3.57.0"]
# ///
"""openai for Python by responses: a tool of two turns, a stream, a structured answer."""

import json
import os

import openai
from cases import CITY, COUNT, PERSON, RESULT, WEATHER, say
from person import Person

client = openai.OpenAI(base_url=os.environ["BASE_URL"], api_key="none")
MODEL = os.environ["MODEL"]

tools = [{"type": "function", **WEATHER["function"]}]
given = [{"role": "user", "content": CITY}]
first = client.responses.create(model=MODEL, input=given, tools=tools)
call = first.output[0]
given += [
    *first.output,
    {"type": "function_call_output", "call_id": call.call_id, "output": RESULT},
]
last = client.responses.create(model=MODEL, input=given, tools=tools)
say("tool", [call.name, json.loads(call.arguments), last.output_text])

with client.responses.stream(model=MODEL, input=COUNT) as stream:
    pieces = [event.delta for event in stream if event.type == "response.output_text.delta"]
    assert stream.get_final_response().output_text == "".join(pieces)
say("stream", "".join(pieces))

parsed = client.responses.parse(model=MODEL, input=PERSON, text_format=Person)
say("structured", parsed.output_parsed.model_dump())
