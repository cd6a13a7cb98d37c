"""Log-probabilities of an answer's tokens in the two shapes of OpenAI's APIs.

JSON has no infinity, so the least that is shown is -9999.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from outrider.contract.inference import Likely, TokenLogprobs

MIN_LOGPROB = -9999.0


def for_chat(tokens: Sequence[TokenLogprobs]) -> dict[str, Any]:
    """Return them as in chat completions: an entry for each token."""
    content = [
        entry(token.token) | {"top_logprobs": [entry(likely) for likely in token.top]}
        for token in tokens
    ]
    return {"content": content, "refusal": None}


def entry(likely: Likely) -> dict[str, Any]:
    """Return one token with its bytes."""
    return {
        "token": likely.text.decode(errors="replace"),
        "logprob": max(likely.logprob, MIN_LOGPROB),
        "bytes": list(likely.text),
    }


@dataclass(slots=True)
class Offsets:
    """Offsets of the tokens of one completion in its text, in characters."""

    _characters: int = 0

    def for_completion(self, tokens: Sequence[TokenLogprobs]) -> dict[str, Any]:
        """Return them as in completions: lists side by side."""
        return {
            "tokens": [written(token.token) for token in tokens],
            "token_logprobs": [_shown(token.token.logprob) for token in tokens],
            "top_logprobs": [
                None
                if math.isnan(token.token.logprob)
                else {written(likely): _shown(likely.logprob) for likely in token.top}
                for token in tokens
            ],
            "text_offset": [self._next(token.token.text) for token in tokens],
        }

    def _next(self, text: bytes) -> int:
        inside = bool(text) and _continues(text[0]) and self._characters > 0
        begin = self._characters - inside
        self._characters += sum(not _continues(byte) for byte in text)
        return begin


def _shown(logprob: float) -> float | None:
    """Return a log-probability in JSON; None: the first token of a prompt has none."""
    return None if math.isnan(logprob) else max(logprob, MIN_LOGPROB)


def _continues(byte: int) -> bool:
    """True if a byte of UTF-8 is not the first of its character."""
    return byte & 0xC0 == 0x80


def written(likely: Likely) -> str:
    """Return a token as a string, its bytes spelled out as OpenAI does if they are no text."""
    try:
        return likely.text.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in likely.text)
