"""Responses of the OpenAI API: choices in their envelope, usage, and the extension `outrider`.

Leaves choices to `choice`, and when a chunk is sent to `generation`.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from outrider.contract.inference import Usage
from outrider.worker.api.http.choice import AnswerChoice
from outrider.worker.api.http.event_stream import DONE
from outrider.worker.api.http.from_openai import OpenAIRequest
from outrider.worker.api.http.ids import new_id
from outrider.worker.api.response import AnswerEnd, GenerateResponse


@dataclass(slots=True)
class OpenAIResponse:
    """The response to one HTTP request, while its parts come."""

    last = DONE
    choices: Sequence[AnswerChoice]
    """Choices, all of the API's kind; those of one prompt follow each other."""
    request: OpenAIRequest
    model: str
    fingerprint: Callable[[], str]
    """Returns what, with a seed, decides the text; called once there is some of it."""
    _ends: dict[int, AnswerEnd] = field(default_factory=dict)
    """End of each choice that has ended, by its number."""
    _id: str = field(init=False)
    _created: int = field(default_factory=lambda: int(time.time()))

    def __post_init__(self) -> None:
        self._id = new_id(self.choices[0].prefix)

    def begin(self) -> list[dict[str, Any]]:
        """Return the chunks before the first token."""
        return [self._chunk(part) for choice in self.choices for part in choice.begin()]

    def take(self, index: int, part: GenerateResponse) -> list[dict[str, Any]]:
        """Return the chunks of the next part of a choice; the last one carries the extension, and
        others the trees that the client wants."""
        chunks = [self._chunk(choice) for choice in self.choices[index].take(part)]
        if chunks and part.tree is not None:
            chunks[0]["outrider"] = {"tree": dataclasses.asdict(part.tree)}
        if part.end is not None:
            self._ends[index] = part.end
            chunks[-1]["outrider"] = extension(self.request.seed, {index: part.end})
        return chunks

    def end(self) -> list[dict[str, Any]]:
        """Return the chunk after the last token, if the client wants usage."""
        if not self.request.include_usage:
            return []
        return [self._envelope(self.choices[0].chunk_object, []) | {"usage": self._usage()}]

    def fail(self, error: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the error alone."""
        return [error]

    def whole(self) -> dict[str, Any]:
        """Return the response that is not streamed."""
        choices = [choice.whole() for choice in self.choices]
        return self._envelope(self.choices[0].whole_object, choices) | {
            "usage": self._usage(),
            "outrider": extension(self.request.seed, self._ends),
        }

    def _chunk(self, choice: dict[str, Any]) -> dict[str, Any]:
        chunk = self._envelope(self.choices[0].chunk_object, [choice])
        return chunk | {"usage": None} if self.request.include_usage else chunk

    def _envelope(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": self.model,
            "system_fingerprint": self.fingerprint(),
            "choices": choices,
        }

    def _usage(self) -> dict[str, Any]:
        """Return the usage of all choices; a prompt counts once, however many choices it has."""
        every = [end.usage for end in self._ends.values()]
        choices = self.request.choices
        firsts = [end.usage for i, end in self._ends.items() if i % choices == 0]
        return usage(firsts, every)


def extension(seed: int, ended: Mapping[int, AnswerEnd]) -> dict[str, Any]:
    """Return the field `outrider`: what the choices that have ended cost, by their numbers."""
    figures = [
        {"index": index, **dataclasses.asdict(end.usage), **dataclasses.asdict(end.timing)}
        for index, end in sorted(ended.items())
    ]
    warnings = list(dict.fromkeys(one for end in ended.values() for one in end.warnings))
    return {"seed": seed, "choices": figures} | ({"warnings": warnings} if warnings else {})


def usage(prompts: Sequence[Usage], answers: Sequence[Usage]) -> dict[str, Any]:
    """Return OpenAI's `usage` of some prompts and all answers to them."""
    prompt = sum(one.prompt_tokens for one in prompts)
    completion = sum(one.completion_tokens for one in answers)
    predicted = [(one.prediction_tokens, one.accepted_prediction_tokens) for one in answers]
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {
            "cached_tokens": sum(one.cached_prompt_tokens for one in prompts)
        },
        "completion_tokens_details": {
            "accepted_prediction_tokens": sum(accepted for _, accepted in predicted),
            "rejected_prediction_tokens": sum(max(0, of - accepted) for of, accepted in predicted),
        },
    }
