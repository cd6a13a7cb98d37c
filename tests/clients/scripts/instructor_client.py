# /// script
# requires-python = ">=3.11"
# dependencies = ["instructor==1.17.0"]
# ///
"""Instructor: structured answers by a forced call, and in pieces as they come."""

import os

import instructor
import openai
from cases import PERSON, say
from person import Person

client = openai.OpenAI(base_url=os.environ["BASE_URL"], api_key="none")
asked = {"model": os.environ["MODEL"], "messages": [{"role": "user", "content": PERSON}]}
tools = instructor.from_openai(client)
say("structured", tools.create(response_model=Person, **asked).model_dump())
parts = list(tools.create_partial(response_model=Person, **asked))
say("in pieces", parts[-1].model_dump())
schema = instructor.from_openai(client, mode=instructor.Mode.JSON_SCHEMA)
say("by schema", schema.create(response_model=Person, **asked).model_dump())
