"""The response to one request to /v1/responses, while its parts come.

Leaves what the answer holds to a chat's choice, and items to `output_items`.
"""

import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from outrider.contract.inference import Usage
from outrider.worker.api.http.choice import ChatChoice
from outrider.worker.api.http.from_openai import OpenAIRequest
from outrider.worker.api.http.ids import new_id
from outrider.worker.api.http.responses.output_items import Event, OutputItems
from outrider.worker.api.http.to_openai import extension
from outrider.worker.api.response import AnswerEnd, GenerateResponse
from outrider.worker.messages import Finish

CUT = {"reason": "max_output_tokens"}


@dataclass(slots=True)
class ResponsesAnswer:
    """The response to one request."""

    last = b""
    request: OpenAIRequest
    model: str
    choice: ChatChoice
    count: Callable[[str], int]
    """Returns the number of a text's tokens."""
    _output: OutputItems = field(default_factory=OutputItems)
    _end: AnswerEnd | None = None
    _error: dict[str, Any] | None = None
    _id: str = field(default_factory=lambda: new_id("resp_"))
    _created: int = field(default_factory=lambda: int(time.time()))
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def status(self) -> str:
        """How far the response is."""
        if self._error is not None:
            return "failed"
        if self._end is None:
            return "in_progress"
        return "incomplete" if self._end.finish is Finish.LENGTH else "completed"

    def begin(self) -> list[Event]:
        """Return the events before the first token."""
        return self._numbered(map(self._whole_as, ("created", "in_progress")))

    def take(self, index: int, part: GenerateResponse) -> list[Event]:
        """Return the events of the next part of the answer."""
        chunks = self.choice.take(part)
        events = [event for chunk in chunks for event in self._output.take(chunk["delta"])]
        if part.end is not None:
            self._end = part.end
            events += self._output.end(self.status)
        return self._numbered(events)

    def end(self) -> list[Event]:
        """Return the event that holds the whole response."""
        return self._numbered([self._whole_as(self.status)])

    def fail(self, error: dict[str, Any]) -> list[Event]:
        """Return the end of the item that is open, the error, and the response up to it."""
        told = error["error"]
        self._error = {"code": told["code"] or told["type"], "message": told["message"]}
        ended = self._output.close("incomplete")
        event = {"type": "error", **self._error, "param": told["param"]}
        return self._numbered([*ended, event, self._whole_as("failed")])

    def whole(self) -> dict[str, Any]:
        """Return the response, as far as it is."""
        end = self._end
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": self.status,
            "error": self._error,
            "incomplete_details": CUT if self.status == "incomplete" else None,
            "model": self.model,
            "output": self._output.shown,
            **self.request.repeated,
            "background": False,
            "previous_response_id": None,
            "store": False,
            "truncation": "disabled",
            "usage": end and self._usage(end.usage),
            "outrider": end and extension(self.request.seed, {0: end}),
        }

    def _whole_as(self, word: str) -> Event:
        return {"type": f"response.{word}", "response": self.whole()}

    def _numbered(self, events: Iterable[Event]) -> list[Event]:
        return [{**event, "sequence_number": next(self._numbers)} for event in events]

    def _usage(self, usage: Usage) -> dict[str, Any]:
        reasoning = self._output.reasoning
        return {
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": {
                "cached_tokens": usage.cached_prompt_tokens,
                "cache_write_tokens": 0,  # none are charged for
            },
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": {
                "reasoning_tokens": self.count(reasoning) if reasoning else 0
            },
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        }
