"""Choices of an answer: each takes the target's responses and gives its part of the HTTP response.

`ChatChoice` and `CompletionChoice` differ in shape only. Leaves the envelope of choices to
`to_openai`.
"""

import abc
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from outrider.contract.inference import TokenLogprobs
from outrider.worker.api.call_tags import KNOWN_TAGS
from outrider.worker.api.http.logprobs import Offsets, for_chat
from outrider.worker.api.http.tool_calls import Calling, ToolCalls
from outrider.worker.api.reasoning import Place, Reasoning
from outrider.worker.api.response import AnswerEnd, GenerateResponse


@dataclass(slots=True)
class AnswerChoice(abc.ABC):
    """One choice, while its responses come."""

    prefix: ClassVar[str]
    """Prefix of the id of the choice's response."""
    whole_object: ClassVar[str]
    """Field `object` of a whole response."""
    chunk_object: ClassVar[str]
    """Field `object` of a chunk of a stream."""

    index: int
    calling: Calling
    """NONE for completions, which call no functions."""
    functions: Sequence[str] = ()
    """Functions that may be called; if forced, one of them has to be."""
    call_tags: Sequence[str] = KNOWN_TAGS
    """Tags that begin a call."""
    place: Place = Place.CONTENT
    """Where the answer begins; completions show it as it comes."""
    _texts: list[str] = field(default_factory=list)
    _logprobs: list[TokenLogprobs] = field(default_factory=list)
    _finish: str | None = None

    def begin(self) -> list[dict[str, Any]]:
        """Return what a stream shows before the first token."""
        return []

    @abc.abstractmethod
    def take(self, response: GenerateResponse) -> list[dict[str, Any]]:
        """Return what a stream shows of the next response; nothing while all of it is buffered."""

    @abc.abstractmethod
    def whole(self) -> dict[str, Any]:
        """Return the choice of a response that is not streamed."""


@dataclass(slots=True)
class CompletionChoice(AnswerChoice):
    """A choice of /v1/completions."""

    prefix = "cmpl-"
    whole_object = chunk_object = "text_completion"
    _offsets: Offsets = field(default_factory=Offsets)

    def take(self, response: GenerateResponse) -> list[dict[str, Any]]:
        """Return the text, and the finish reason at the end."""
        self._texts.append(response.text)
        self._logprobs.extend(response.logprobs)
        self._finish = response.end.finish.value if response.end else None
        if not (response.text or response.logprobs or self._finish):
            return []
        logprobs = list(response.logprobs)
        return [self._shape(response.text, self._offsets.for_completion(logprobs), logprobs)]

    def whole(self) -> dict[str, Any]:
        shaped = Offsets().for_completion(self._logprobs)
        return self._shape("".join(self._texts), shaped, self._logprobs)

    def _shape(
        self, text: str, logprobs: dict[str, Any], tokens: list[TokenLogprobs]
    ) -> dict[str, Any]:
        return {
            "index": self.index,
            "text": text,
            "logprobs": logprobs if tokens else None,
            "finish_reason": self._finish,
        }


@dataclass(slots=True)
class ChatChoice(AnswerChoice):
    """A choice of /v1/chat/completions."""

    prefix = "chatcmpl-"
    whole_object, chunk_object = "chat.completion", "chat.completion.chunk"
    _tools: ToolCalls = field(init=False)
    _reasoning: Reasoning = field(init=False)
    _thoughts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._tools = ToolCalls(self.calling, self.functions, self.call_tags)
        self._reasoning = Reasoning(self.place)

    def begin(self) -> list[dict[str, Any]]:
        """Return the role."""
        return [self._chunk({"role": "assistant", "content": ""})]

    def take(self, response: GenerateResponse) -> list[dict[str, Any]]:
        """Return reasoning, then text and calls as they were written, and the finish reason at the
        end."""
        thought, content = self._reasoning.push(response.text)
        if response.end is not None:
            last = self._reasoning.finish()
            thought, content = thought + last[0], content + last[1]
        deltas = self._tools.push(content)
        if response.end is not None:
            deltas += self._tools.finish()
        self._texts += (delta.get("content", "") for delta in deltas)
        self._thoughts.append(thought)
        self._logprobs.extend(response.logprobs)
        if thought:
            deltas[:1] = [{"reasoning_content": thought} | delta for delta in deltas[:1] or [{}]]
        if response.logprobs and not deltas:
            deltas = [{}]
        tokens = [list(response.logprobs), *[None] * len(deltas)]
        chunks = list(map(self._chunk, deltas, tokens))
        if response.end is not None:
            self._finish = self._finish_reason(response.end)
            chunks.append(self._chunk({}))
        return chunks

    def whole(self) -> dict[str, Any]:
        """Return the message."""
        text = "".join(self._texts)
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        if thoughts := "".join(self._thoughts):
            message["reasoning_content"] = thoughts
        if self._tools.calls:
            message |= {"content": text or None, "tool_calls": self._tools.calls}
        return {
            "index": self.index,
            "message": message,
            "logprobs": for_chat(self._logprobs) if self._logprobs else None,
            "finish_reason": self._finish,
        }

    def _finish_reason(self, end: AnswerEnd) -> str:
        reason = end.finish.value
        return "tool_calls" if self._tools.complete and reason == "stop" else reason

    def _chunk(
        self, delta: dict[str, Any], tokens: list[TokenLogprobs] | None = None
    ) -> dict[str, Any]:
        return {
            "index": self.index,
            "delta": delta,
            "logprobs": for_chat(tokens) if tokens else None,
            "finish_reason": self._finish,
        }
