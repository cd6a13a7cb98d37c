"""One choice of an answer: takes the target's responses, gives its part of chunks or of the whole.

`ChatChoice` and `CompletionChoice` differ in shape only. Leaves what stands around choices to
`replies`.
"""

from dataclasses import dataclass, field
from typing import Any, Protocol

from outrider.protos.v1 import inference_pb2 as pb
from outrider.worker.api.http.logprobs import Offsets, for_chat
from outrider.worker.api.http.tool_calls import Calling, ToolCalls

FINISH_REASONS = {pb.FINISH_REASON_STOP: "stop", pb.FINISH_REASON_LENGTH: "length"}


class Choice(Protocol):
    """One answer on its way."""

    def begin(self) -> list[dict[str, Any]]:
        """What a stream shows before the first token."""

    def take(self, response: pb.GenerateResponse) -> list[dict[str, Any]]:
        """What a stream shows of the next response; nothing while all of it is held back."""

    def whole(self) -> dict[str, Any]:
        """The choice as it stands in an answer that is not streamed."""


@dataclass(slots=True)
class CompletionChoice:
    """A choice of /v1/completions."""

    index: int
    calling: Calling
    """Always NONE: completions call no functions."""
    _texts: list[str] = field(default_factory=list)
    _logprobs: list[pb.TokenLogprobs] = field(default_factory=list)
    _offsets: Offsets = field(default_factory=Offsets)
    _finish: str | None = None

    def begin(self) -> list[dict[str, Any]]:
        """Nothing."""
        return []

    def take(self, response: pb.GenerateResponse) -> list[dict[str, Any]]:
        """Text, and the finish reason at the end."""
        self._texts.append(response.text)
        self._logprobs.extend(response.logprobs)
        self._finish = FINISH_REASONS.get(response.finish_reason)
        if not (response.text or response.logprobs or self._finish):
            return []
        logprobs = list(response.logprobs)
        return [self._shape(response.text, self._offsets.for_completion(logprobs), logprobs)]

    def whole(self) -> dict[str, Any]:
        """All text."""
        shaped = Offsets().for_completion(self._logprobs)
        return self._shape("".join(self._texts), shaped, self._logprobs)

    def _shape(
        self, text: str, logprobs: dict[str, Any], tokens: list[pb.TokenLogprobs]
    ) -> dict[str, Any]:
        return {
            "index": self.index,
            "text": text,
            "logprobs": logprobs if tokens else None,
            "finish_reason": self._finish,
        }


@dataclass(slots=True)
class ChatChoice:
    """A choice of /v1/chat/completions."""

    index: int
    calling: Calling
    _tools: ToolCalls = field(init=False)
    _texts: list[str] = field(default_factory=list)
    _logprobs: list[pb.TokenLogprobs] = field(default_factory=list)
    _finish: str | None = None

    def __post_init__(self) -> None:
        self._tools = ToolCalls(self.calling)

    def begin(self) -> list[dict[str, Any]]:
        """Who speaks."""
        return [self._chunk({"role": "assistant", "content": ""})]

    def take(self, response: pb.GenerateResponse) -> list[dict[str, Any]]:
        """Text and calls, and the finish reason at the end."""
        known = len(self._tools.calls)
        text = self._tools.push(response.text)
        if response.finish_reason:
            text += self._tools.finish()
        self._texts.append(text)
        self._logprobs.extend(response.logprobs)
        delta: dict[str, Any] = {"content": text} if text else {}
        if new := self._tools.calls[known:]:
            delta["tool_calls"] = [
                {"index": index, **call} for index, call in enumerate(new, known)
            ]
        shown = delta or response.logprobs
        chunks = [self._chunk(delta, list(response.logprobs))] if shown else []
        if response.finish_reason:
            self._finish = self._finish_reason(response)
            chunks.append(self._chunk({}))
        return chunks

    def whole(self) -> dict[str, Any]:
        """The message."""
        text = "".join(self._texts)
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        if self._tools.calls:
            message |= {"content": text.strip() or None, "tool_calls": self._tools.calls}
        return {
            "index": self.index,
            "message": message,
            "logprobs": for_chat(self._logprobs) if self._logprobs else None,
            "finish_reason": self._finish,
        }

    def _finish_reason(self, response: pb.GenerateResponse) -> str:
        reason = FINISH_REASONS[response.finish_reason]
        return "tool_calls" if self._tools.calls and reason == "stop" else reason

    def _chunk(
        self, delta: dict[str, Any], tokens: list[pb.TokenLogprobs] | None = None
    ) -> dict[str, Any]:
        return {
            "index": self.index,
            "delta": delta,
            "logprobs": for_chat(tokens) if tokens else None,
            "finish_reason": self._finish,
        }
