"""Requests for text: what a client sends, and its check and defaults on the way to the engine.

Leaves prompts to `prompt` and response formats to `response_format`; admits nothing.
"""

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from outrider.contract.inference import MAX_STREAM_INTERVAL_MS, STREAM_INTERVAL_MS, Model
from outrider.worker.api.prompt import Chat, Prompt, Prompts
from outrider.worker.api.response_format import CompiledFormat, ResponseFormat, ResponseFormats
from outrider.worker.api.scored_prompt import PENALTIES, scored
from outrider.worker.errors import TooLong, UnknownModel
from outrider.worker.messages import Submit
from outrider.worker.sampling.params import SamplingParams, require

DEFAULT_MAX_TOKENS = 256
NO_FORMAT = CompiledFormat("", ())
MAX_STOPS = 16
MAX_STOP_TOKENS = 128
STOP_TOKENS_LIMIT = f"at most {MAX_STOP_TOKENS} tokens"
MAX_PRIORITY = 1000
MAX_LOGPROBS = 20
MAX_STOP_CHARACTERS = 1024
SHOWN_CHARACTERS = 64
"""Characters shown of a name that is refused: a refusal must fit gRPC's trailers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel(Model):
    """The model of a target, as requests see it."""

    end_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One request for text, unchecked; fields as `GenerateRequest` of inference.proto."""

    prompt: Prompt | None
    """None: the client sent none."""
    sampling: Mapping[str, Any]
    """Fields of `SamplingParams` that are given; others are the model's defaults."""
    temperature: float = 0.0
    """Where neither the request nor the model says."""
    model: str = ""
    max_tokens: int | None = None
    stop: Sequence[str] = ()
    echo: bool = False
    """Whether the answer begins with the prompt, and its log-probabilities with those of the
    prompt; HTTP only."""
    stop_token_ids: Sequence[int] = ()
    """Tokens that end the answer, beside the model's own; HTTP only."""
    shows_stop: bool = False
    """Whether the stop string or token that ends the answer is part of its text; HTTP only."""
    bad_words: Sequence[str] = ()
    """Words that the answer may not hold; HTTP only."""
    ignore_end: bool = False
    speculate: bool = True
    priority: int = 0
    logprobs: int | None = None
    response_format: ResponseFormat | None = None
    stream_interval_ms: int | None = None
    shows_tree: bool = False
    """Whether responses say what passes verified; over HTTP only."""
    least_indent: int = 0
    """Spaces and tabs before each line of the answer but the first; it ends before a line that has
    fewer. HTTP only."""
    line_seconds: float | None = None
    """Time after which the answer ends with the line that is being written; HTTP only."""
    prediction: str | Sequence[int] = ()
    """The answer that the client expects, as text or token ids; no ids: it expects none."""
    chat: Chat | None = None
    """The chat that the ids of the prompt lay out; None: they are of none."""

    @property
    def limits_lines(self) -> bool:
        """Whether there is a limit on the lines of the answer."""
        return self.least_indent > 0 or self.line_seconds is not None

    @property
    def scores(self) -> bool:
        """Whether the log-probabilities of its prompt are wanted."""
        return self.echo and self.logprobs is not None

    def sampling_params(self, default: Mapping[str, Any]) -> SamplingParams:
        """Return what is given, with the model's defaults for the rest: those of its penalties
        only where it scores no prompt."""
        unsaid = {"temperature": self.temperature, **default}
        if self.scores:
            unsaid = {name: value for name, value in unsaid.items() if name not in PENALTIES}
        return SamplingParams(**{**unsaid, **self.sampling})


class ParsedRequest(NamedTuple):
    """One request for text, checked."""

    submit: Submit
    warnings: tuple[str, ...]
    """Parts of its response format that are not forced."""


@dataclass(frozen=True, slots=True)
class RequestParser:
    """Makes the engine's requests of the clients' requests for one model."""

    model: ServedModel
    prompts: Prompts
    formats: ResponseFormats
    queue_seconds: float
    """Longest that a request waits for its first step."""
    _numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    async def parse(self, request: GenerateRequest) -> ParsedRequest:
        """Check a request and fill in its defaults; raise `InvalidField` or `UnknownModel`."""
        arrived = time.monotonic()
        self.check_model(request.model)
        sampling = request.sampling_params(self.model.default_sampling)
        check_stops(request.stop)
        prompt = await self.prompts.encode(request.prompt)
        ends = self._end_ids(request, prompt)
        sampling = replace(
            sampling,
            late=ends if sampling.min_tokens else (),
            forbidden=await self.prompts.encode_words(request.bad_words),
        )
        sampling.validate(self.model.vocabulary_size)
        least = 0 if request.scores else 1
        max_tokens = self._max_tokens(request.max_tokens, len(prompt), least)
        checked("min_tokens", sampling.min_tokens, 0, max_tokens)
        prediction = await self.prompts.encode_prediction(request.prediction)
        context = self.model.context_length
        form, count = NO_FORMAT, request.logprobs
        ends_by_text = bool(request.stop) or request.limits_lines
        if (wanted := request.response_format) is not None:
            check_free(sampling)
            form = await self.formats.compiled(wanted, request.ignore_end)
        submit = Submit(
            request=next(self._numbers),
            prompt=np.array(prompt, np.int32),
            sampling=sampling,
            max_tokens=max_tokens,
            end_ids=ends,
            speculate=request.speculate,
            arrived=arrived,
            priority=checked("priority", request.priority, -MAX_PRIORITY, MAX_PRIORITY),
            start_by=arrived + self.queue_seconds,
            logprobs=None if count is None else checked("logprobs", count, 0, MAX_LOGPROBS),
            grammar=form.grammar,
            stream_seconds=stream_seconds(request.stream_interval_ms, ends_by_text),
            shows_tree=request.shows_tree,
            ends_by_text=ends_by_text,
            prediction=np.array(prediction[:context], np.int32),
            cut_prediction_tokens=max(0, len(prediction) - context),
        )
        return ParsedRequest(scored(submit) if request.scores else submit, form.warnings)

    def check_model(self, name: str) -> None:
        """Raise `UnknownModel` for a name that is neither this model's nor empty."""
        if name not in ("", self.model.name):
            raise UnknownModel(
                f"model: {name[:SHOWN_CHARACTERS]!r} is not served here; "
                f"allowed: {self.model.name!r}, or empty"
            )

    def _end_ids(self, request: GenerateRequest, prompt: Sequence[int]) -> tuple[int, ...]:
        """Return the tokens that end the answer: an editor may have laid out the prompt to fill in
        the middle itself."""
        given, most = request.stop_token_ids, self.model.vocabulary_size - 1
        require(len(given) <= MAX_STOP_TOKENS, "stop_token_ids", len(given), STOP_TOKENS_LIMIT)
        for token in given:
            checked("stop_token_ids", token, 0, most)
        if request.ignore_end:
            return tuple(given)
        fim = self.prompts.fim
        fills = fim is not None and fim.prefix in prompt and fim.suffix in prompt
        more = fim.ends if fim and fills else ()
        return tuple(dict.fromkeys((*self.model.end_ids, *more, *given)))

    def _max_tokens(self, max_tokens: int | None, prompt: int, least: int) -> int:
        room = self.model.context_length - prompt
        if max_tokens is None:
            return min(DEFAULT_MAX_TOKENS, room)
        limit = (
            f"it must be {least} to {room}: the prompt has {prompt} tokens and the context length "
            f"is {self.model.context_length}"
        )
        require(max_tokens >= least, "max_tokens", max_tokens, limit)
        if max_tokens > room:
            raise TooLong("max_tokens", max_tokens, limit, self.model.context_length)
        return max_tokens


def check_free(sampling: SamplingParams) -> None:
    """Raise `InvalidField` for what may leave an answer of a format without any token."""
    limit = "an answer of a response format has its tokens and its end from there"
    require(sampling.min_tokens == 0, "min_tokens", sampling.min_tokens, limit)
    require(not sampling.forbidden, "bad_words", f"{len(sampling.forbidden)} words", limit)


def checked(name: str, value: int, least: int, most: int) -> int:
    """Return a number; raise `InvalidField` for one out of its limits."""
    require(least <= value <= most, name, value, f"it must be {least} to {most}")
    return value


def stream_seconds(interval_ms: int | None, ends_by_text: bool) -> float:
    """Return the least seconds between two messages with tokens; raise `InvalidField`.

    What `ends_by_text`, as by a stop string, ends where text is, in the server, which therefore
    has to see tokens soon.
    """
    interval_ms = STREAM_INTERVAL_MS if interval_ms is None else interval_ms
    checked("stream_interval_ms", interval_ms, 0, MAX_STREAM_INTERVAL_MS)
    return min(interval_ms, STREAM_INTERVAL_MS if ends_by_text else interval_ms) / 1000


def check_stops(stops: Sequence[str]) -> None:
    """Raise `InvalidField` for stop strings out of their limits."""
    require(len(stops) <= MAX_STOPS, "stop", f"{len(stops)} strings", f"at most {MAX_STOPS}")
    for index, stop in enumerate(stops):
        require(
            0 < len(stop) <= MAX_STOP_CHARACTERS,
            f"stop[{index}]",
            stop[:32],
            f"a stop string has 1 to {MAX_STOP_CHARACTERS} characters",
        )
