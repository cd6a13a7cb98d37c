"""Requests of a client: the prompt's three forms and the options of one request.

Checks nothing: limits are the server's to name. Leaves messages to `outrider.client.wire`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from outrider.contract.inference import Format, Message

Prompt = str | Sequence[Message] | Sequence[int]
"""Plain text, a conversation for the model's chat template, or token ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Sampling params of one request; None takes the model's default, or is greedy."""

    temperature: float | None = None
    """Divides the logits; 0 takes the likeliest token."""
    top_k: int | None = None
    """Keeps the k likeliest tokens; 0 keeps all."""
    top_p: float | None = None
    """Keeps the smallest set whose probability reaches this share."""
    min_p: float | None = None
    """Drops tokens less likely than this share of the likeliest."""
    seed: int | None = None
    """Same seed, same text; None: a random one, which the result reports."""
    choice: int | None = None
    """Number of this answer among several to one prompt: with one seed, each has its own text."""
    frequency_penalty: float | None = None
    """Taken from a token's logit for each time that the answer holds it."""
    presence_penalty: float | None = None
    """Taken once from the logit of each token that the answer holds."""
    repetition_penalty: float | None = None
    """Divides positive logits of tokens that prompt or answer hold, multiplies negative ones."""
    logit_bias: Mapping[int, float] | None = None
    """Amount that is added to a token's logit, by token id."""


class Options(TypedDict, total=False):
    """Keyword options of `generate` and `complete`; each may be left out."""

    model: str
    """Name of the model; "" (the default) takes the one that is served."""
    sampling: Sampling | None
    """Sampling params; None (the default) is greedy."""
    max_tokens: int | None
    """Most tokens to generate; None (the default) takes the server's default."""
    tools: Sequence[Mapping[str, Any]]
    """Functions that a conversation may call, in the shape of OpenAI's `tools`."""
    stop: Sequence[str]
    """Strings at which the answer ends; they are not returned."""
    speculate: bool | None
    """False answers by plain decoding."""
    ignore_end: bool
    """Go on past the model's end-of-text token, up to `max_tokens`."""
    priority: int
    """Requests of a higher priority start first, from -1000 to 1000; 0 is the default."""
    logprobs: int | None
    """How many likeliest tokens come with each token and its log-probability, 0 to 20; None (the
    default): no log-probabilities."""
    format: Format | None
    """What form the answer must have; None (the default): any."""
    stream_interval_ms: int | None
    """Least milliseconds between two chunks, 0 (each pass's tokens at once) to 1000; None (the
    default): 16 for `generate`, 1000 for `complete`, whose caller waits for the end."""
    prediction: str | None
    """Text that the answer is expected to have: it comes sooner where that is right, and is the
    same whatever it is; None (the default): none is expected."""
    timeout: float | None
    """Seconds until the call is given up; None (the default) takes the client's."""
