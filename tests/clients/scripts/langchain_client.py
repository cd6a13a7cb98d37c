# /// script
# requires-python = ">=3.11"
# dependencies = ["langchain-openai==1.7.4"]
# ///
"""LangChain's ChatOpenAI: a tool of two turns, a stream, a structured answer."""

import os

from cases import CITY, COUNT, PERSON, RESULT, say
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from person import Person


@tool
def weather(city: str) -> str:
    """Return the weather in a city."""
    return RESULT


model = ChatOpenAI(base_url=os.environ["BASE_URL"], api_key="none", model=os.environ["MODEL"])
with_tools = model.bind_tools([weather])
messages = [HumanMessage(CITY)]
first = with_tools.invoke(messages)
call = first.tool_calls[0]
messages += [first, ToolMessage(weather.invoke(call["args"]), tool_call_id=call["id"])]
say("tool", [call["name"], call["args"], with_tools.invoke(messages).content])
say("stream", "".join(piece.content for piece in model.stream(COUNT)))
say("structured", model.with_structured_output(Person).invoke(PERSON).model_dump())
