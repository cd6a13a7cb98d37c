"""One request of a load, and its answer as it streams in, with the times at which text came.

Times are seconds since the run began.
"""

import enum
import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

TEXT_KEYS = ("content", "reasoning_content", "reasoning")
"""Where chat deltas hold text; the latter two are those of servers that stream reasoning."""


class Status(enum.StrEnum):
    """End of a request."""

    COMPLETED = "completed"
    REJECTED = "rejected"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


class Broken(Exception):
    """The endpoint answered what is no answer; the message says what."""


Job = tuple[int, dict[str, Any]]
"""Number of a prompt, and the JSON of a request; jobs of one number ask exactly the same."""


@dataclass(slots=True, eq=False)
class Exchange:
    """One request, while it runs and after."""

    job: Job
    due: float
    """When it should be sent."""
    sent: float = 0.0
    ended: float = 0.0
    status: Status = Status.INTERRUPTED
    problem: str = ""
    """Reason for a failure."""
    texts: defaultdict[int, str] = field(default_factory=lambda: defaultdict(str))
    """What came of each choice, by its index: text, names and arguments of calls."""
    ends: dict[int, str] = field(default_factory=dict)
    """The finish reason of each choice that has ended."""
    times: list[float] = field(default_factory=list)
    """Arrival of each piece of text."""
    usage: dict[str, Any] = field(default_factory=dict)
    """As reported by the endpoint; empty if it was not."""
    figures: list[dict[str, Any]] = field(default_factory=list)
    """Figures of each choice, as Outrider's endpoint reports them; empty if it reported none."""

    @property
    def tokens(self) -> int:
        """Tokens of the answer as reported; where nothing was reported, as many as pieces."""
        return int(self.usage.get("completion_tokens", len(self.times)))

    async def run(self, client: httpx.AsyncClient, clock: Callable[[], float]) -> None:
        """Send and read; what goes wrong becomes the status. Only cancellation is raised."""
        self.sent = clock()
        try:
            self.status = await self._answered(client, clock)
        except (httpx.HTTPError, httpx.StreamError, Broken) as error:
            self.status, self.problem = Status.FAILED, words(error)
        finally:
            self.ended = clock()

    async def _answered(self, client: httpx.AsyncClient, clock: Callable[[], float]) -> Status:
        async with client.stream("POST", "chat/completions", json=self.job[1]) as response:
            if response.status_code == httpx.codes.TOO_MANY_REQUESTS:
                return Status.REJECTED
            if response.status_code != httpx.codes.OK:
                await response.aread()
                raise Broken(f"HTTP {response.status_code}: {error_words(response.text)}")
            async for line in response.aiter_lines():
                value = line.removeprefix("data:").strip()
                if value == "[DONE]":
                    break
                if line.startswith("data:"):
                    self._take(value, clock())
        if not self.ends or self.texts.keys() - self.ends.keys():
            raise Broken("the stream ended before the answer did")
        return Status.COMPLETED

    def _take(self, value: str, at: float) -> None:
        """Take one event; raises `Broken` for an error or what cannot be read."""
        try:
            event = json.loads(value)
            if event.get("error"):
                raise Broken(f"error in the stream: {error_words(value)}")
            self.usage = event.get("usage") or self.usage
            self.figures += (event.get("outrider") or {}).get("choices") or ()
            for choice in event.get("choices") or ():
                index = choice.get("index", 0)
                if piece := said(choice.get("delta") or {}):
                    self.texts[index] += piece
                    self.times.append(at)
                if end := choice.get("finish_reason"):
                    self.ends[index] = end
        except (json.JSONDecodeError, TypeError, AttributeError):
            raise Broken(f"an event that is no chat completion chunk: {value[:80]}") from None


def said(delta: Mapping[str, Any]) -> str:
    """Return what a chunk adds to a choice: text, then names and arguments of calls."""
    functions = (call.get("function") or {} for call in delta.get("tool_calls") or ())
    called = (function.get(key) or "" for function in functions for key in ("name", "arguments"))
    return "".join([*(delta.get(key) or "" for key in TEXT_KEYS), *called])


def words(error: Exception) -> str:
    """Return an error's message, or its kind where it has none."""
    return str(error) or type(error).__name__


def error_words(text: str) -> str:
    """Return the message of an error in OpenAI's shape, or what stands in its place."""
    try:
        error = json.loads(text)["error"]
        text = error["message"] if isinstance(error, dict) else str(error)
    except (ValueError, KeyError, TypeError):
        pass
    return " ".join(text.split())[:200]
