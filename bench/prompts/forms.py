"""Forms of a chat request, for a soak: choices, stops, formats, tools, penalties and the rest."""

from typing import Any

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
ADVICE = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "maxLength": 40},
        "steps": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 3},
        "minutes": {"type": "integer"},
    },
    "required": ["title", "steps", "minutes"],
    "additionalProperties": False,
}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": CITY}}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {
            "id": "call_1",
            "type": "function",
            "function": {"name": "weather", "arguments": '{"city": "Oslo"}'},
        }
    ],
}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "4 degrees, rain"}
SETTINGS: tuple[dict[str, Any], ...] = (
    {"temperature": 0},
    {"temperature": 0.8, "top_p": 0.9},
    {"temperature": 1.0, "n": 3},
    {"temperature": 0, "stop": [".", "\n\n"]},
    {"temperature": 0.7, "n": 2, "stop": [" the", "er"], "include_stop_str_in_output": True},
    {"temperature": 0, "min_tokens": 24, "bad_words": ["the", "I"]},
    {"temperature": 0, "repetition_penalty": 1.2},
    {"temperature": 0.9, "frequency_penalty": 0.5, "presence_penalty": 0.7},
    {"temperature": 0, "logprobs": True, "top_logprobs": 2},
    {"temperature": 0.6, "response_format": {"type": "json_object"}},
    {
        "temperature": 0,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "advice", "schema": ADVICE, "strict": True},
        },
    },
    {"temperature": 0.8, "n": 2, "structured_outputs": {"regex": "[a-z]{3,9}( [a-z]{2,7}){2,5}"}},
    {"temperature": 0, "structured_outputs": {"choice": ["yes", "no", "perhaps"]}},
    {"temperature": 0, "tools": [WEATHER]},
    {"temperature": 0.9, "tools": [WEATHER], "tool_choice": "required"},
)


def in_all_forms(prompt: str) -> list[dict[str, Any]]:
    """Return a prompt's requests: with every settings, and after the result of a tool."""
    asked = [{"role": "user", "content": prompt}]
    after = {"messages": [*asked, CALL, RESULT], "tools": [WEATHER], "temperature": 0}
    return [after, *({"messages": asked} | settings for settings in SETTINGS)]
