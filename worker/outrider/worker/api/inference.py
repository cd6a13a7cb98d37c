"""The `Inference` service of a target: admits requests, and answers them over gRPC.

Admission and answers serve HTTP too. Leaves what a request may ask to `submission`, and what an
answer says to `answers`; knows nothing of drafts.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from outrider.protos.v1 import inference_pb2 as pb
from outrider.protos.v1 import inference_pb2_grpc
from outrider.worker.api import rejections
from outrider.worker.api.prompt import Prompts
from outrider.worker.api.request import RequestParser, Served
from outrider.worker.api.response import Admitted, Responses
from outrider.worker.api.response_format import ResponseFormats
from outrider.worker.api.text import StopStrings, Text
from outrider.worker.engine.handle import EngineHandle
from outrider.worker.errors import QueueFull, Stopping, WorkerError, status, trailers
from outrider.worker.messages import Submit
from outrider.worker.sampling.params import require

FOREVER_SECONDS = 1e9
"""gRPC's word for no deadline is one in the far future."""
NO_CARRIER: Mapping[str, Any] = MappingProxyType({})
Context = Any  # grpc.aio.ServicerContext, whose stubs want both message types at every use


@dataclass(slots=True)
class Inference(inference_pb2_grpc.InferenceServicer):
    """One target's requests."""

    model: Served
    text: Text
    engine: EngineHandle
    max_waiting: int
    queue_seconds: float
    """Longest that a request waits for its first step."""
    forms: ResponseFormats
    request_seconds: float | None = None
    """Longest answer to a request that comes without a deadline; None: no limit."""
    trace: Callable[[Submit, Mapping[str, Any]], Submit] | None = None
    """Begins the span of a request, given its metadata or headers; None: off."""
    draining: bool = False
    linking: bool = False
    """Whether a new target still waits for its first draft, and says that it is not ready."""
    refused: "Counter[str]" = field(default_factory=Counter)
    """Requests that never reached the engine, by reason."""
    _prompts: Prompts = field(init=False)
    _submissions: RequestParser = field(init=False)
    _answers: Responses = field(init=False)

    def __post_init__(self) -> None:
        model = self.model
        self._prompts = Prompts(self.text, model.context, model.vocabulary)
        self._submissions = RequestParser(model, self._prompts, self.forms, self.queue_seconds)
        self._answers = Responses(self.engine, self.text)

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
            self._submissions.check_model(request.model)
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
            self._submissions.check_model(request.model)
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
    def fingerprint(self) -> str:
        """What, with a seed, decides a text: the revision and, once known, the numeric path."""
        ready = self.engine.ready
        known = ready.done() and not ready.exception()
        return f"{self.model.revision}-{ready.result().dtype}" if known else self.model.revision

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

    @rejections.counted
    async def encode(self, request: pb.GenerateRequest) -> list[int]:
        """Token ids of a request's prompt; raises `InvalidField` or `UnknownModel`."""
        self._submissions.check_model(request.model)
        return await self._prompts.encode(request)

    @rejections.counted
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
        submit = await self._submissions.parse(request)
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
            async for response in self._answers.of(admitted):
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

    def _full(self) -> QueueFull:
        """The refusal of one more request."""
        running = self.engine.report.running
        seconds = self.engine.retry_after.seconds_until_room(self.open_requests - running, running)
        return QueueFull(
            f"{self.open_requests} requests are open, the limit; try again in {seconds} s", seconds
        )
