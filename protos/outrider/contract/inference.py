"""Parts of requests and answers, alike for a client and a worker.

Fields are those of the messages of inference.proto.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

STREAM_INTERVAL_MS = 16
"""Default interval between messages of a stream: tokens that come faster than a screen is refreshed
travel together. A message costs server and client about 0.5 and 0.3 ms of processor time whatever
its size (Zen 5, grpcio 1.85), and each pass waits for the thread whose processor they take. Plain
decoding of the demo on two processors: 3.78 ms a token."""
MAX_STREAM_INTERVAL_MS = 1000
"""Longest interval between messages of a stream, also of answers that nobody reads before their
end: so often, the server's metrics and a client that is cut off learn what has come. Plain decoding
of the demo on two processors: 3.38 ms a token."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: str
    """`system`, `user`, `assistant` or `tool`, and what else the model's chat template knows."""
    content: str
    """The turn's text."""
    tool_calls: Sequence[Mapping[str, Any]] = ()
    """Calls that an assistant's turn made, in the shape of OpenAI's `tool_calls`."""
    tool_call_id: str = ""
    """The call that a turn of the role `tool` answers."""
    name: str = ""
    """Who speaks, where several share a role."""
    reasoning_content: str = ""
    """Thoughts of an assistant's turn, for chat templates that lay them out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """Response format of an answer; set one of the three."""

    json_object: bool | None = None
    """Any JSON object."""
    json_schema: str | None = None
    """JSON that fits this JSON Schema."""
    regex: str | None = None
    """Text that this regular expression matches as a whole."""


@dataclass(frozen=True, slots=True)
class Likely:
    """One token as a likely one at its place."""

    token_id: int
    logprob: float
    """Natural log of its probability under the model's own distribution."""
    text: bytes
    """Its bytes; a character may need several tokens."""


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log-probability of one token of an answer, and of the likeliest others."""

    token: Likely
    top: tuple[Likely, ...]
    """The likeliest tokens at its place, best first."""


@dataclass(slots=True, kw_only=True)
class Usage:
    """The cost of one answer in tokens, rows and passes."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    passes: int = 0
    draft_rows: int = 0
    accepted_rows: int = 0
    passes_with_nodes: int = 0
    first_guesses: int = 0
    first_hits: int = 0
    cached_prompt_tokens: int = 0
    prediction_tokens: int = 0
    accepted_prediction_tokens: int = 0
    cut_prediction_tokens: int = 0


@dataclass(slots=True, kw_only=True)
class Timing:
    """Where the time of one answer went, in seconds."""

    queued_seconds: float = 0.0
    first_token_seconds: float = 0.0
    total_seconds: float = 0.0
    decode_seconds: float = 0.0
    plain_seconds: float = 0.0
    draft_wait_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One model that a target serves."""

    name: str
    context_length: int
    """Most tokens of prompt and answer together."""
    vocabulary_size: int
    revision: str
    """Hash of weights and code version."""
    has_chat_template: bool
    default_sampling: dict[str, float] = field(default_factory=dict)
    """Sampling params of requests that do not say: the model's own, by field of `Sampling`."""
