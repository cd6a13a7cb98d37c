"""Log-probabilities of an answer's tokens in the two shapes that OpenAI's APIs have.

Leaves what they are to the engine; JSON has no infinity, so the least that is shown is -9999.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from outrider.protos.v1 import inference_pb2 as pb

MIN_LOGPROB = -9999.0


def for_chat(tokens: Sequence[pb.TokenLogprobs]) -> dict[str, Any]:
    """As in chat completions: an entry for each token."""
    content = [
        entry(token.token) | {"top_logprobs": [entry(likely) for likely in token.top]}
        for token in tokens
    ]
    return {"content": content, "refusal": None}


def entry(likely: pb.Likely) -> dict[str, Any]:
    """One token with its bytes."""
    return {
        "token": likely.text.decode(errors="replace"),
        "logprob": max(likely.logprob, MIN_LOGPROB),
        "bytes": list(likely.text),
    }


@dataclass(slots=True)
class Offsets:
    """Where the tokens of one completion begin in its text, counted in characters."""

    _characters: int = 0

    def for_completion(self, tokens: Sequence[pb.TokenLogprobs]) -> dict[str, Any]:
        """As in completions: lists side by side."""
        return {
            "tokens": [written(token.token) for token in tokens],
            "token_logprobs": [max(token.token.logprob, MIN_LOGPROB) for token in tokens],
            "top_logprobs": [
                {written(likely): max(likely.logprob, MIN_LOGPROB) for likely in token.top}
                for token in tokens
            ],
            "text_offset": [self._next(token.token.text) for token in tokens],
        }

    def _next(self, text: bytes) -> int:
        inside = bool(text) and _continues(text[0]) and self._characters > 0
        begin = self._characters - inside
        self._characters += sum(not _continues(byte) for byte in text)
        return begin


def _continues(byte: int) -> bool:
    """Whether a byte of UTF-8 is not the first of its character."""
    return byte & 0xC0 == 0x80


def written(likely: pb.Likely) -> str:
    """A token as a string; bytes that are no whole characters are spelled out, as OpenAI does."""
    try:
        return likely.text.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in likely.text)
