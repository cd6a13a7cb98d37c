"""Parameters of /v1/responses that are not served or have another name in chats."""

from collections.abc import Mapping
from typing import Any

KEPT = "the items of earlier turns as input, as nothing is kept here"
UNSERVED: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(("previous_response_id", "conversation", "prompt", "context_management"), ()),
    **dict.fromkeys(("store", "background", "logprobs", "draft_tree"), (False,)),
    **dict.fromkeys(("messages", "max_tokens", "max_completion_tokens", "response_format"), ()),
    **dict.fromkeys(("reasoning_effort", "verbosity"), ()),
    "n": (1,),
    "top_logprobs": (0,),
    "truncation": ("disabled",),
}
"""Values of each that change nothing, beside null."""
INSTEAD: Mapping[str, str] = {
    **dict.fromkeys(("previous_response_id", "conversation"), KEPT),
    **dict.fromkeys(("logprobs", "top_logprobs", "n", "draft_tree"), "it to /v1/chat/completions"),
    **dict.fromkeys(("max_tokens", "max_completion_tokens"), "max_output_tokens"),
    "background": "false",
    "messages": "input",
    "prompt": "instructions and input",
    "reasoning_effort": "reasoning.effort",
    "response_format": "text.format",
    "store": "false, as nothing is kept here",
    "truncation": "disabled",
    "verbosity": "text.verbosity",
}
"""What to send in their place."""
