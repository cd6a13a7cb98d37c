# /// script
# requires-python = ">=3.11"
# dependencies = ["llama-index-llms-openai-like==0.8.1"]
# ///
"""LlamaIndex's OpenAILike: a tool of two turns, a stream, a structured answer."""

import os

from cases import CITY, COUNT, PERSON, RESULT, say
from llama_index.core.llms import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from person import Person


def weather(city: str) -> str:
    """Return the weather in a city."""
    return RESULT


model = OpenAILike(
    model=os.environ["MODEL"],
    api_base=os.environ["BASE_URL"],
    api_key="none",
    is_chat_model=True,
    is_function_calling_model=True,
)
tools = [FunctionTool.from_defaults(weather)]
messages = [ChatMessage(role="user", content=CITY)]
first = model.chat_with_tools(tools, chat_history=messages)
call = model.get_tool_calls_from_response(first)[0]
result = {"role": "tool", "content": RESULT, "additional_kwargs": {"tool_call_id": call.tool_id}}
last = model.chat_with_tools(tools, chat_history=[*messages, first.message, ChatMessage(**result)])
say("tool", [call.tool_name, call.tool_kwargs, last.message.content])
asked = [ChatMessage(role="user", content=COUNT)]
say("stream", "".join(piece.delta for piece in model.stream_chat(asked)))
say("structured", model.structured_predict(Person, PromptTemplate(PERSON)).model_dump())
