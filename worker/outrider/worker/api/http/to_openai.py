"""What stands around the choices of an answer: ids, usage, and the extension `outrider`.

Leaves choices to `choice`, and when what is sent to `generation`.
"""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import Message

from outrider.protos.v1 import inference_pb2 as pb
from outrider.worker.api.http.choice import ChatChoice, Choice, CompletionChoice
from outrider.worker.api.http.from_openai import Asked

ID_BYTES = 12


@dataclass(frozen=True, slots=True)
class ReplyShape:
    """What the two APIs call things."""

    prefix: str
    whole: str
    chunk: str
    choice: type[ChatChoice] | type[CompletionChoice]


CHAT = ReplyShape("chatcmpl-", "chat.completion", "chat.completion.chunk", ChatChoice)
COMPLETION = ReplyShape("cmpl-", "text_completion", "text_completion", CompletionChoice)


@dataclass(slots=True)
class Reply:
    """One HTTP answer on its way."""

    shape: ReplyShape
    asked: Asked
    model: str
    fingerprint: Callable[[], str]
    """What, with a seed, decides the text; asked once there is some of it."""
    choices: list[Choice] = field(init=False)
    _last: dict[int, pb.GenerateResponse] = field(default_factory=dict)
    """The last response of each choice that has ended."""
    _id: str = field(default_factory=lambda: secrets.token_hex(ID_BYTES))
    _created: int = field(default_factory=lambda: int(time.time()))

    def __post_init__(self) -> None:
        count = len(self.asked.requests) * self.asked.choices
        self.choices = [self.shape.choice(index, self.asked.calling) for index in range(count)]

    def begin(self) -> list[dict[str, Any]]:
        """Chunks before the first token."""
        return [self._chunk(part) for choice in self.choices for part in choice.begin()]

    def take(self, index: int, response: pb.GenerateResponse) -> list[dict[str, Any]]:
        """Chunks of the next response of a choice; the last one carries the extension."""
        chunks = [self._chunk(part) for part in self.choices[index].take(response)]
        if response.finish_reason:
            self._last[index] = response
            chunks[-1]["outrider"] = self._extension({index: response})
        return chunks

    def end(self) -> list[dict[str, Any]]:
        """The chunk after the last token, if usage was asked for."""
        if not self.asked.include_usage:
            return []
        return [self._envelope(self.shape.chunk, []) | {"usage": self._usage()}]

    def whole(self) -> dict[str, Any]:
        """The answer that is not streamed."""
        choices = [choice.whole() for choice in self.choices]
        extension = self._extension(self._last)
        return self._envelope(self.shape.whole, choices) | {
            "usage": self._usage(),
            "outrider": extension,
        }

    def _chunk(self, choice: dict[str, Any]) -> dict[str, Any]:
        chunk = self._envelope(self.shape.chunk, [choice])
        return chunk | {"usage": None} if self.asked.include_usage else chunk

    def _envelope(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.shape.prefix + self._id,
            "object": kind,
            "created": self._created,
            "model": self.model,
            "system_fingerprint": self.fingerprint(),
            "choices": choices,
        }

    def _usage(self) -> dict[str, Any]:
        """Over all choices; a prompt counts once, however many answers it has."""
        every = [last.usage for last in self._last.values()]
        firsts = [last.usage for i, last in self._last.items() if i % self.asked.choices == 0]
        return usage(firsts, every)

    def _extension(self, ended: Mapping[int, pb.GenerateResponse]) -> dict[str, Any]:
        figures = [
            {"index": index, **_plain(last.usage), **_plain(last.timing)}
            for index, last in sorted(ended.items())
        ]
        return {"seed": self.asked.seed, "choices": figures}


def usage(prompts: Sequence[pb.Usage], answers: Sequence[pb.Usage]) -> dict[str, Any]:
    """OpenAI's `usage` of some prompts and all answers to them."""
    prompt = sum(one.prompt_tokens for one in prompts)
    completion = sum(one.completion_tokens for one in answers)
    accepted = sum(one.accepted_rows for one in answers)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {
            "cached_tokens": sum(one.cached_prompt_tokens for one in prompts)
        },
        "completion_tokens_details": {
            "accepted_prediction_tokens": accepted,
            "rejected_prediction_tokens": sum(one.draft_rows for one in answers) - accepted,
        },
    }


def _plain(message: Message) -> dict[str, Any]:
    return {field.name: getattr(message, field.name) for field in message.DESCRIPTOR.fields}
