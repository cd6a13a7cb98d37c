"""One streamed answer, read event by event, with the times at which its text came.

Receives lines of server-sent events; the connection they come from is `exchange`'s.
"""

import json
from dataclasses import dataclass, field
from typing import Any

DONE = "[DONE]"
TEXT_KEYS = ("content", "reasoning_content", "reasoning")
"""Where chat deltas hold text; the latter two are those of servers that stream reasoning."""


class Broken(Exception):
    """The endpoint answered what is no answer; the message says what."""


@dataclass(slots=True)
class StreamedChunk:
    """A piece of text as it came."""

    at: float
    """Seconds since the run began."""
    tokens: float | None = None
    """Tokens that came with it, where the endpoint reports usage in every chunk."""


@dataclass(slots=True)
class StreamedUsage:
    """Usage that the endpoint reported; None: it did not."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    accepted_tokens: int | None = None
    rejected_tokens: int | None = None

    def take(self, usage: dict[str, Any]) -> None:
        """Later reports replace earlier ones."""
        details = usage.get("completion_tokens_details") or {}
        self.prompt_tokens = usage.get("prompt_tokens", self.prompt_tokens)
        self.completion_tokens = usage.get("completion_tokens", self.completion_tokens)
        self.accepted_tokens = details.get("accepted_prediction_tokens", self.accepted_tokens)
        self.rejected_tokens = details.get("rejected_prediction_tokens", self.rejected_tokens)


@dataclass(slots=True)
class StreamedAnswer:
    """An answer as far as it has come."""

    pieces: list[str] = field(default_factory=list)
    chunks: list[StreamedChunk] = field(default_factory=list)
    usage: StreamedUsage = field(default_factory=StreamedUsage)
    finish_reason: str | None = None
    done: bool = False
    """The end marker came."""

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self.pieces)

    @property
    def tokens(self) -> int:
        """As reported; where nothing was reported, as many as chunks."""
        reported = self.usage.completion_tokens
        return len(self.chunks) if reported is None else reported

    def take(self, line: str, at: float) -> None:
        """One line of the stream; raises `Broken` on an error or what cannot be read."""
        name, _, value = line.partition(":")
        if name != "data" or self.done:
            return
        value = value.strip()
        if value == DONE:
            self.done = True
            return
        try:
            self._event(json.loads(value), at)
        except (json.JSONDecodeError, KeyError, IndexError, TypeError, AttributeError):
            raise Broken(f"an event that is no chat completion chunk: {value[:80]}") from None

    def _event(self, event: dict[str, Any], at: float) -> None:
        if event.get("error"):
            raise Broken(f"error in the stream: {error_words(event)}")
        before = self.usage.completion_tokens or 0
        usage = event.get("usage")
        if usage:
            self.usage.take(usage)
        for choice in event.get("choices") or ():
            delta = choice.get("delta") or {}
            piece = "".join(delta.get(key) or "" for key in TEXT_KEYS)
            if piece:
                new = (self.usage.completion_tokens or 0) - before if usage else None
                self.pieces.append(piece)
                self.chunks.append(StreamedChunk(at, new))
            self.finish_reason = choice.get("finish_reason") or self.finish_reason


def error_words(body: dict[str, Any]) -> str:
    """The message of an error in OpenAI's shape, or what stands in its place."""
    error = body.get("error")
    words = error.get("message") if isinstance(error, dict) else error or body.get("message")
    return " ".join(str(words or body).split())[:200]
