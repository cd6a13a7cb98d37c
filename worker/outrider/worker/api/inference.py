"""Admission of requests to a target, the same for gRPC and HTTP.

Leaves the check of a request to `request` and its responses to `response`; knows no drafts.
"""

import asyncio
import contextlib
import dataclasses
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from outrider.contract.settings import WorkerSettings
from outrider.worker.api.answer_text import AnswerText
from outrider.worker.api.auth import AUTHORIZATION, ApiKeys
from outrider.worker.api.availability import Availability
from outrider.worker.api.line_limits import LineLimits
from outrider.worker.api.prompt import Chat, Prompt, Prompts
from outrider.worker.api.request import GenerateRequest, RequestParser, ServedModel
from outrider.worker.api.response import Admitted, GenerateResponse, Responses
from outrider.worker.api.response_format import ResponseFormats
from outrider.worker.api.scored_prompt import empty_answer
from outrider.worker.api.text import StopStrings, Text
from outrider.worker.engine.handle import EngineHandle
from outrider.worker.errors import InvalidField, QueueFull, Stopping, WorkerError
from outrider.worker.messages import NO_KEY, Submit

NO_METADATA: Mapping[str, Any] = MappingProxyType({})


@dataclass(slots=True)
class Inference:
    """One target's requests."""

    model: ServedModel
    text: Text
    engine: EngineHandle
    settings: WorkerSettings
    """Its limits of open requests are here."""
    formats: ResponseFormats
    availability: Availability
    trace: Callable[[Submit, Mapping[str, Any]], Submit] | None = None
    """Begins the span of a request, given its metadata or headers; None: off."""
    keys: ApiKeys | None = None
    """API keys that callers need; None: none."""
    callers: int = NO_KEY
    """Key of all callers where they need none."""
    rejections: "Counter[str]" = field(default_factory=Counter)
    """Requests that never reached the engine, by reason."""
    _prompts: Prompts = field(init=False)
    _parser: RequestParser = field(init=False)
    _responses: Responses = field(init=False)

    def __post_init__(self) -> None:
        model, seconds = self.model, self.settings.queue_seconds
        self._prompts = Prompts(self.text, model.context_length, model.vocabulary_size)
        self._parser = RequestParser(model, self._prompts, self.formats, seconds)
        self._responses = Responses(self.engine, self.text)

    @property
    def fingerprint(self) -> str:
        """Revision and, once known, numeric path: with a seed, they decide a text."""
        ready = self.engine.ready
        known = ready.done() and not ready.exception()
        return f"{self.model.revision}-{ready.result().dtype}" if known else self.model.revision

    @property
    def open_requests(self) -> int:
        """Count of requests that wait or run."""
        return len(self.engine.answers)

    @property
    def max_open(self) -> int:
        """Requests that may be open at once: the waiting ones and, once the engine is ready, those
        that it runs."""
        ready = self.engine.ready
        runs = ready.result().sessions if ready.done() and not ready.exception() else 0
        return self.settings.max_waiting + runs

    @property
    def ready(self) -> bool:
        """True if the engine runs and new requests are taken."""
        ready = self.engine.ready
        running = ready.done() and not ready.exception() and not self.engine.gone.is_set()
        stages = self.engine.stages
        return running and (stages is None or stages.up) and not self.availability.draining

    async def tokenize(self, model: str, prompt: str | Chat | None) -> list[int]:
        """Return the token ids of a text or a chat; raise `InvalidField` or `UnknownModel`."""
        self._parser.check_model(model)
        if prompt is None:
            raise InvalidField("input", None, "set one of text and chat")
        return await self._prompts.tokenize(prompt)

    def detokenize(self, model: str, ids: Sequence[int]) -> str:
        """Return the text of token ids; raise `InvalidField` or `UnknownModel`."""
        self._parser.check_model(model)
        self._prompts.check_ids("ids", ids)
        return self.text.decode(ids)

    async def encode(self, model: str, prompt: Prompt | None) -> list[int]:
        """Return the token ids of a request's prompt; raise `InvalidField` or `UnknownModel`."""
        with self._count_rejection():
            self._parser.check_model(model)
            return await self._prompts.encode(prompt)

    async def encode_prediction(self, prediction: str | Sequence[int]) -> Sequence[int]:
        """Return the token ids of an expected answer; raise `InvalidField`."""
        with self._count_rejection():
            return await self._prompts.encode_prediction(prediction)

    async def admit(
        self,
        request: GenerateRequest,
        seconds: float | None,
        metadata: Mapping[str, Any] = NO_METADATA,
    ) -> Admitted:
        """Hand a request to the engine, to be answered within `seconds`.

        `metadata` is the client's metadata or headers, which may hold its span and its key.

        Raises `InvalidField`, `UnknownModel`, `QueueFull` or `Stopping`.
        """
        with self._count_rejection():
            return await self._admit(request, seconds, metadata)

    async def _admit(
        self, request: GenerateRequest, seconds: float | None, metadata: Mapping[str, Any]
    ) -> Admitted:
        deadline = None if seconds is None else asyncio.get_running_loop().time() + seconds
        submit, warnings = await self._parser.parse(request)
        if self.availability.refusing:
            raise Stopping("this target is draining; send the request to another one")
        if self.open_requests >= self.max_open:
            raise self._queue_full()
        given, keys = metadata.get(AUTHORIZATION, ""), self.keys
        submit = dataclasses.replace(submit, key=keys.number(given) if keys else self.callers)
        answer = self._answer_text(request, submit)
        if submit.max_tokens == 0:
            events = empty_answer(submit, answer)
        else:
            submit = self.trace(submit, metadata) if self.trace is not None else submit
            events = self.engine.submit(submit, answer)
        return Admitted(submit, events, answer, deadline, warnings, request.echo)

    def _answer_text(self, request: GenerateRequest, submit: Submit) -> AnswerText:
        """Return what makes the text of the answer to a request."""
        words = StopStrings(tuple(request.stop), request.shows_stop)
        limited = LineLimits(words, request.least_indent, request.line_seconds)
        chat = request.prompt if isinstance(request.prompt, Chat) else request.chat
        calls_tools = chat is not None and bool(chat.tools_json)
        begins = request.echo if chat is None else not chat.options.continues
        detokenizer = self.text.detokenizer(begins, chat is not None, calls_tools)
        hidden = () if request.shows_stop else request.stop_token_ids
        return AnswerText(
            detokenizer,
            limited if request.limits_lines else words,
            hidden=frozenset(hidden),
            least=max(submit.sampling.min_tokens, len(submit.sampling.forced)),
            first=detokenizer.push(submit.prompt.tolist()) if request.echo else "",
        )

    async def responses(self, admitted: Admitted) -> AsyncIterator[GenerateResponse]:
        """Yield the responses to an admitted request; leaving early cancels it.

        Raises `RequestFailed`, `GrammarFailed`, `WaitedTooLong`, `DeadlineExceeded` or `Stopping`.
        """
        try:
            async for response in self._responses.of(admitted):
                yield response
        finally:
            self.release(admitted)

    def release(self, admitted: Admitted) -> None:
        """Cancel a request, unless it has ended."""
        if admitted.submit.request in self.engine.answers:
            self.engine.cancel(admitted.submit.request)

    def end_open(self) -> None:
        """End every open answer with `Stopping`: the time to finish them is over."""
        for answer in self.engine.answers.values():
            answer.events.put_nowait(None)

    def _queue_full(self) -> QueueFull:
        running = self.engine.report.running
        seconds = self.engine.retry_after.seconds_until_room(self.open_requests - running, running)
        return QueueFull(
            f"{self.open_requests} requests are open, the limit; try again in {seconds} s", seconds
        )

    @contextlib.contextmanager
    def _count_rejection(self) -> Iterator[None]:
        """Count a `WorkerError` of the block by its class as a label: `queue_full`."""
        try:
            yield
        except WorkerError as error:
            reason = re.sub(r"(?<!^)(?=[A-Z])", "_", type(error).__name__).lower()
            self.rejections[reason] += 1
            raise
