"""The `Inference` service of a target: proto at the edge, text in, a stream of tokens out.

Validates requests against the model's limits, hands token ids to the engine, and turns its events
back into text. Leaves the forms of a prompt to `prompts`; knows nothing of drafts.
"""

import asyncio
import dataclasses
import itertools
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from outrider.protos.v1 import inference_pb2 as pb
from outrider.protos.v1 import inference_pb2_grpc
from outrider.worker.engine_handle import EngineHandle, Event
from outrider.worker.errors import (
    DeadlineExceeded,
    FormFailed,
    QueueFull,
    RequestFailed,
    Stopping,
    TooLong,
    UnknownModel,
    WaitedTooLong,
    WorkerError,
    status,
    trailers,
)
from outrider.worker.form import Forms
from outrider.worker.messages import Finish, Finished, Submit, Tokens
from outrider.worker.metrics import refusals
from outrider.worker.prompts import Prompts
from outrider.worker.sampling import Sampling, require
from outrider.worker.text import Detokenizer, StopStrings, Text

DEFAULT_MAX_TOKENS = 256
MAX_STOPS = 16
MOST_PRIORITY = 1000
MAX_LOGPROBS = 20
MAX_STOP_CHARACTERS = 1024
SHOWN_CHARACTERS = 64
"""Of a name that is refused: a refusal must fit gRPC's trailers."""
FINISH = {
    Finish.STOP: pb.FINISH_REASON_STOP,
    Finish.LENGTH: pb.FINISH_REASON_LENGTH,
    Finish.CANCELLED: pb.FINISH_REASON_STOP,  # the end of an answer that nobody reads
}
FOREVER_SECONDS = 1e9
"""gRPC's word for no deadline is one in the far future."""
NO_CARRIER: Mapping[str, Any] = MappingProxyType({})
Context = Any  # grpc.aio.ServicerContext, whose stubs want both message types at every use


@dataclass(frozen=True, slots=True)
class Served:
    """The model behind the service."""

    name: str
    revision: str
    context: int
    vocabulary: int
    end_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request that the engine has; whoever admitted it iterates its responses or releases it."""

    submit: Submit
    events: "asyncio.Queue[Event | None]"
    stops: StopStrings
    deadline: float | None
    """Loop time at which it is given up."""


@dataclass(slots=True)
class Inference(inference_pb2_grpc.InferenceServicer):
    """One target's requests."""

    model: Served
    text: Text
    engine: EngineHandle
    max_waiting: int
    queue_seconds: float
    """Longest that a request waits for its first step."""
    forms: Forms
    request_seconds: float | None = None
    """Longest answer to a request that comes without a deadline; None: no limit."""
    trace: Callable[[Submit, Mapping[str, Any]], Submit] | None = None
    """Begins the span of a request, given its metadata or headers; None: off."""
    draining: bool = False
    refused: "Counter[str]" = field(default_factory=Counter)
    """Requests that never reached the engine, by reason."""
    _prompts: Prompts = field(init=False)
    _numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self._prompts = Prompts(self.text, self.model.context, self.model.vocabulary)

    async def Generate(
        self, request: pb.GenerateRequest, context: Context
    ) -> AsyncIterator[pb.GenerateResponse]:
        """Answers one request; see inference.proto."""
        try:
            remaining = context.time_remaining()
            limited = remaining is not None and remaining < FOREVER_SECONDS
            seconds = None if limited else self.request_seconds  # gRPC keeps its own deadlines
            carrier = dict(context.invocation_metadata()) if self.trace else NO_CARRIER
            admitted = await self.admit(request, seconds, carrier)
            async for response in self.responses(admitted):
                yield response
        except WorkerError as error:
            await context.abort(status(error), str(error), trailers(error))

    async def Tokenize(self, request: pb.TokenizeRequest, context: Context) -> pb.TokenizeResponse:
        """Token ids of a text or a chat."""
        try:
            self._check_model(request.model)
            which = request.WhichOneof("input")
            require(which is not None, "input", which, "set one of text and chat")
            return pb.TokenizeResponse(ids=await self._prompts.tokenize(request))
        except WorkerError as error:
            await context.abort(status(error), str(error))
            raise

    async def Detokenize(
        self, request: pb.DetokenizeRequest, context: Context
    ) -> pb.DetokenizeResponse:
        """Text of token ids."""
        try:
            self._check_model(request.model)
            self._prompts.check_ids("ids", request.ids)
            return pb.DetokenizeResponse(text=self.text.decode(request.ids))
        except WorkerError as error:
            await context.abort(status(error), str(error))
            raise

    async def ListModels(
        self, request: pb.ListModelsRequest, context: Context
    ) -> pb.ListModelsResponse:
        """The one model."""
        return pb.ListModelsResponse(
            models=[
                pb.Model(
                    name=self.model.name,
                    context_length=self.model.context,
                    vocabulary_size=self.model.vocabulary,
                    revision=self.model.revision,
                    has_chat_template=self.text.has_chat_template,
                )
            ]
        )

    @property
    def open_requests(self) -> int:
        """Requests that wait or run."""
        return len(self.engine.answers)

    @property
    def places(self) -> int:
        """Requests that may be open at once: those that wait and, once it is ready, those that
        the engine runs."""
        ready = self.engine.ready
        runs = ready.result().sessions if ready.done() and not ready.exception() else 0
        return self.max_waiting + runs

    @property
    def ready(self) -> bool:
        """Whether the engine runs and new requests are taken."""
        ready = self.engine.ready
        running = ready.done() and not ready.exception() and not self.engine.gone.is_set()
        return running and not self.draining

    @refusals.counted
    async def encode(self, request: pb.GenerateRequest) -> list[int]:
        """Token ids of a request's prompt; raises `InvalidField` or `UnknownModel`."""
        self._check_model(request.model)
        return await self._prompts.encode(request)

    @refusals.counted
    async def admit(
        self,
        request: pb.GenerateRequest,
        seconds: float | None,
        carrier: Mapping[str, Any] = NO_CARRIER,
    ) -> Admitted:
        """Hands a request over to the engine, to be answered within `seconds`.

        `carrier` has what the client sent beside it, its span among it if it traces.

        Raises `InvalidField`, `UnknownModel`, `QueueFull` or `Stopping`.
        """
        deadline = None if seconds is None else asyncio.get_running_loop().time() + seconds
        submit = await self.parse(request)
        stops = StopStrings(tuple(request.stop))
        if self.draining:
            raise Stopping("this target is draining; send the request to another one")
        if self.open_requests >= self.places:
            raise self._full()
        if self.trace is not None:
            submit = self.trace(submit, carrier)
        return Admitted(submit, self.engine.submit(submit), stops, deadline)

    async def responses(self, admitted: Admitted) -> AsyncIterator[pb.GenerateResponse]:
        """Answers an admitted request; leaving early cancels it.

        Raises `RequestFailed`, `FormFailed`, `DeadlineExceeded` or `Stopping`.
        """
        try:
            async for response in self._answer(admitted):
                yield response
        finally:
            self.release(admitted)

    def release(self, admitted: Admitted) -> None:
        """Nobody waits for this request any more; does nothing for one that has ended."""
        if admitted.submit.request in self.engine.answers:
            self.engine.cancel(admitted.submit.request)

    def end_open(self) -> None:
        """Ends every open answer with `Stopping`: the time to finish them is over."""
        for events in self.engine.answers.values():
            events.put_nowait(None)

    async def _answer(self, admitted: Admitted) -> AsyncIterator[pb.GenerateResponse]:
        """Turns the engine's events into messages until the last one."""
        submit, stops = admitted.submit, admitted.stops
        detokenizer = Detokenizer(self.text)
        stopped = False
        while True:
            match await _next(admitted):
                case Tokens(ids=ids, passes=passes) as tokens:
                    if stopped:
                        continue
                    piece, stopped = stops.push(detokenizer.push(ids))
                    yield pb.GenerateResponse(
                        token_ids=ids, text=piece, passes=passes, logprobs=self._logprobs(tokens)
                    )
                    if stopped:
                        self.engine.cancel(submit.request, Finish.STOP)
                case Finished() as finished:
                    rest = "" if stopped else stops.finish(detokenizer.finish())
                    yield _last(finished, rest, submit.sampling.seed)
                    return
                case None:
                    why = "the engine died" if self.engine.gone.is_set() else "the target stopped"
                    raise Stopping(f"{why} during this request; send it to another target")

    async def parse(self, request: pb.GenerateRequest) -> Submit:
        """Domain request from the wire; raises `InvalidField` or `UnknownModel`."""
        arrived = time.monotonic()
        self._check_model(request.model)
        sampling = parse_sampling(request.sampling, self.model.vocabulary)
        check_stops(request.stop)
        prompt = await self._prompts.encode(request)
        grammar = ""
        if request.HasField("format"):
            grammar = await asyncio.to_thread(self.forms.parse, request.format, request.ignore_end)
        return Submit(
            request=next(self._numbers),
            prompt=np.array(prompt, np.int32),
            sampling=sampling,
            max_tokens=self._max_tokens(request, len(prompt)),
            end_ids=() if request.ignore_end else self.model.end_ids,
            speculate=not request.HasField("speculate") or request.speculate,
            arrived=arrived,
            priority=check_priority(request.priority),
            start_by=arrived + self.queue_seconds,
            logprobs=parse_logprobs(request),
            grammar=grammar,
        )

    def _full(self) -> QueueFull:
        """The refusal of one more request."""
        running = self.engine.report.running
        seconds = self.engine.turnover.come_back(self.open_requests - running, running)
        return QueueFull(
            f"{self.open_requests} requests are open, the limit; try again in {seconds} s", seconds
        )

    def _logprobs(self, tokens: Tokens) -> list[pb.TokenLogprobs]:
        return [
            pb.TokenLogprobs(
                token=self._likely(token, found.logprob),
                top=[self._likely(*likely) for likely in found.top],
            )
            for token, found in zip(tokens.ids, tokens.likelihoods, strict=False)
        ]

    def _likely(self, token: int, logprob: float) -> pb.Likely:
        return pb.Likely(id=token, logprob=logprob, text=self.text.tokens[token])

    def _max_tokens(self, request: pb.GenerateRequest, prompt: int) -> int:
        room = self.model.context - prompt
        if not request.HasField("max_tokens"):
            return min(DEFAULT_MAX_TOKENS, room)
        limit = (
            f"it must be 1 to {room}: the prompt has {prompt} tokens and the context length is "
            f"{self.model.context}"
        )
        require(request.max_tokens > 0, "max_tokens", request.max_tokens, limit)
        if request.max_tokens > room:
            raise TooLong("max_tokens", request.max_tokens, limit)
        return request.max_tokens

    def _check_model(self, name: str) -> None:
        if name not in ("", self.model.name):
            raise UnknownModel(
                f"model: {name[:SHOWN_CHARACTERS]!r} is not served here; "
                f"allowed: {self.model.name!r}, or empty"
            )


async def _next(admitted: Admitted) -> Event | None:
    """The engine's next event for this request; raises `DeadlineExceeded`."""
    try:
        async with asyncio.timeout_at(admitted.deadline):
            return await admitted.events.get()
    except TimeoutError:
        raise DeadlineExceeded("the request was not answered within its time") from None


def parse_sampling(sampling: pb.Sampling, vocabulary: int) -> Sampling:
    """Sampling settings with defaults filled in; a random seed if none is given.

    Raises `InvalidField`; token ids are below `vocabulary`.
    """
    given = {f.name: value for f, value in sampling.ListFields()}
    seed = given.pop("seed", None)
    given["logit_bias"] = tuple(sorted(sampling.logit_bias.items()))
    parsed = dataclasses.replace(
        Sampling(), seed=secrets.randbits(64) if seed is None else seed, **given
    )
    parsed.validate(vocabulary)
    return parsed


def check_priority(priority: int) -> int:
    """The priority; raises `InvalidField` for one out of its limits."""
    require(
        -MOST_PRIORITY <= priority <= MOST_PRIORITY,
        "priority",
        priority,
        f"it must be -{MOST_PRIORITY} to {MOST_PRIORITY}",
    )
    return priority


def parse_logprobs(request: pb.GenerateRequest) -> int | None:
    """How many likeliest tokens are wanted beside each one; None: no log-probabilities."""
    if not request.HasField("logprobs"):
        return None
    asked = request.logprobs
    require(asked <= MAX_LOGPROBS, "logprobs", asked, f"it must be 0 to {MAX_LOGPROBS}")
    return asked


def check_stops(stops: Any) -> None:
    """Raises `InvalidField` for stop strings out of their limits."""
    require(len(stops) <= MAX_STOPS, "stop", f"{len(stops)} strings", f"at most {MAX_STOPS}")
    for index, stop in enumerate(stops):
        require(
            0 < len(stop) <= MAX_STOP_CHARACTERS,
            f"stop[{index}]",
            stop[:32],
            f"a stop string has 1 to {MAX_STOP_CHARACTERS} characters",
        )


def _last(finished: Finished, text: str, seed: int) -> pb.GenerateResponse:
    if finished.finish is Finish.FAILED:
        raise RequestFailed(finished.detail)
    if finished.finish is Finish.UNFORMED:
        raise FormFailed(finished.detail)
    if finished.finish is Finish.EXPIRED:
        raise WaitedTooLong(finished.detail)
    return pb.GenerateResponse(
        text=text,
        finish_reason=FINISH[finished.finish],
        usage=pb.Usage(**_fields(finished.usage)),
        timing=pb.Timing(**_fields(finished.timing)),
        seed=seed,
    )


def _fields(value: Any) -> dict[str, Any]:
    return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
