"""llama-server's /infill, as editors call it: its body, what that asks for, and its answer.

Fields that neither are here nor change an answer are ignored, `cache_prompt`, `id_slot` and
`t_max_prompt_ms` among them. Leaves the prompt to `fim` and events to `generation`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue

from outrider.worker.api.fim import File, FimPrompt
from outrider.worker.api.http.body_part import AT_FIRST_FAULT, FEW, BodyPart
from outrider.worker.api.http.from_openai import OpenAIRequest, parse
from outrider.worker.api.http.schemas import (
    MAX_UINT,
    Body,
    Count,
    TextOrNull,
    Whole,
)
from outrider.worker.api.http.tool_calls import Calling
from outrider.worker.api.request import DEFAULT_MAX_TOKENS
from outrider.worker.api.response import AnswerEnd, GenerateResponse
from outrider.worker.messages import Finish

SAMPLING: Mapping[str, Any] = {"temperature": 0.0, "repetition_penalty": 1.0}
"""Where the body does not say: a model's own are for its chats."""
MAX_FIELDS = 64
ResponseField = Annotated[str, Field(max_length=64)]


class ExtraFile(BodyPart):
    """A file of the repository, or a piece of it, as context."""

    text: str
    filename: TextOrNull = ""


class InfillBody(Body):
    """Body of POST /infill."""

    input_prefix: str
    input_suffix: str
    input_extra: Annotated[list[ExtraFile], AT_FIRST_FAULT, FEW] | None = None
    prompt: TextOrNull = ""
    """More of the prefix: what is before the cursor in its line."""
    n: Literal[1] | None = None
    samplers: JsonValue = None
    """Ignored: editors send llama-server's default, which orders the filters as they are."""
    n_predict: Annotated[Whole, Field(ge=-1, le=MAX_UINT)] | None = None
    n_indent: Count | None = None
    t_max_predict_ms: Count | None = None
    response_fields: (
        Annotated[list[ResponseField], AT_FIRST_FAULT, Field(max_length=MAX_FIELDS)] | None
    ) = None


def infill(body: InfillBody) -> OpenAIRequest:
    """Convert a body of /infill; raise `InvalidField`."""
    count = DEFAULT_MAX_TOKENS if body.n_predict in (None, -1) else body.n_predict
    most = max(1, count or 0)
    prompt = FimPrompt(
        prefix=body.input_prefix + body.prompt,
        suffix=body.input_suffix,
        answer_tokens=most,
        files=tuple(File(extra.filename, extra.text) for extra in body.input_extra or ()),
        field="input_suffix",
    )
    parsed = parse(body, (prompt,), Calling.NONE, most)
    request = dataclasses.replace(
        parsed.request,
        sampling={**SAMPLING, **parsed.request.sampling},
        max_tokens=None,
        least_indent=body.n_indent or 0,
        line_seconds=body.t_max_predict_ms / 1000 if body.t_max_predict_ms else None,
    )
    return dataclasses.replace(
        parsed,
        request=request,
        names={**parsed.names, "max_tokens": "n_predict"},
        prompt_only=count == 0,
        response_fields=tuple(body.response_fields or ()),
    )


@dataclass(slots=True)
class InfillResponse:
    """The response to one request, while its parts come."""

    request: OpenAIRequest
    model: str
    context: int
    last = b""
    _texts: list[str] = field(default_factory=list)
    _end: AnswerEnd | None = None

    def begin(self) -> list[dict[str, Any]]:
        """Return nothing: a stream begins with text."""
        return []

    def take(self, index: int, part: GenerateResponse) -> list[dict[str, Any]]:
        """Return the text, and all else at the end."""
        self._end = part.end
        text = "" if self.request.prompt_only else part.text
        self._texts.append(text)
        if part.end is not None:
            return [self._shown({**self._fields(part.end), "content": text})]
        return [{"index": 0, "content": text, "stop": False}] if text else []

    def end(self) -> list[dict[str, Any]]:
        """Return nothing: the end of the answer says all."""
        return []

    def fail(self, error: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the error alone."""
        return [error]

    def whole(self) -> dict[str, Any]:
        """Return the response that is not streamed."""
        assert self._end is not None
        return self._shown(self._fields(self._end))

    def _fields(self, end: AnswerEnd) -> dict[str, Any]:
        usage, content = end.usage, "".join(self._texts)
        predicted = 0 if self.request.prompt_only else usage.completion_tokens
        stop_type = _stop_type(end)
        full = usage.prompt_tokens + usage.completion_tokens >= self.context
        return {
            "index": 0,
            "content": content,
            "stop": True,
            "model": self.model,
            "stop_type": stop_type,
            "stopping_word": end.word or "",
            "has_new_line": "\n" in content,
            "truncated": end.finish is Finish.LENGTH and full,
            "tokens_cached": usage.cached_prompt_tokens,
            "tokens_evaluated": usage.prompt_tokens,
            "tokens_predicted": predicted,
            "timings": _timings(end, predicted),
        }

    def _shown(self, fields: dict[str, Any]) -> dict[str, Any]:
        wanted = self.request.response_fields
        return picked(fields, wanted) if wanted else fields


def picked(fields: Mapping[str, Any], paths: Sequence[str]) -> dict[str, Any]:
    """Return the fields at some paths, such as `timings/prompt_n`, under these; unknown ones are
    left out."""
    found = {}
    for path in paths:
        value: Any = fields
        for name in path.split("/"):
            value = value.get(name) if isinstance(value, Mapping) else None
        if value is not None:
            found[path] = value
    return found


def _stop_type(end: AnswerEnd) -> str:
    if end.word:
        return "word"
    return "limit" if end.finish is Finish.LENGTH or end.word == "" else "eos"


def _timings(end: AnswerEnd, predicted: int) -> dict[str, Any]:
    usage, timing = end.usage, end.timing
    read = usage.prompt_tokens - usage.cached_prompt_tokens
    reading = timing.first_token_seconds - timing.queued_seconds
    return {
        "cache_n": usage.cached_prompt_tokens,
        **_phase("prompt", read, reading),
        **_phase("predicted", predicted, timing.decode_seconds if predicted else 0.0),
        "draft_n": usage.draft_rows,
        "draft_n_accepted": usage.accepted_rows,
    }


def _phase(name: str, count: int, seconds: float) -> dict[str, Any]:
    return {
        f"{name}_n": count,
        f"{name}_ms": 1000 * seconds,
        f"{name}_per_token_ms": 1000 * seconds / count if count else 0.0,
        f"{name}_per_second": count / seconds if seconds else 0.0,
    }
