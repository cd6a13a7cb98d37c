"""What every client asks, and how it says what it got."""

import json
from typing import Any

CITY = "What is the weather in Paris?"
RESULT = "18 degrees"
COUNT = "Count to four."
PERSON = "Who wrote the first program?"
EDIT = "Make hello.py say good-bye."
BEFORE = 'print("hello")\n'
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


def say(case: str, got: Any) -> None:
    """Print what a case got, as a line of JSON."""
    print(json.dumps({case: got}), flush=True)
