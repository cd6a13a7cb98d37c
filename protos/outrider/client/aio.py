"""The asyncio client: `outrider.client.sync` with awaits, and nothing else.

Leaves messages to `outrider.client.wire` and errors to `outrider.client.errors`.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

import grpc
from grpc import aio

from outrider.client import wire
from outrider.client.answer import Chunk, Result
from outrider.client.channel import Connected
from outrider.client.errors import Cancelled, from_rpc
from outrider.client.request import Options, Prompt
from outrider.contract.inference import Message, Model
from outrider.contract.settings import PolicySettings
from outrider.contract.state import State, TimelineSpan
from outrider.protos.v1 import inference_pb2
from outrider.protos.v1.internal import control_pb2

if TYPE_CHECKING:
    from outrider.protos.v1.inference_pb2_grpc import InferenceAsyncStub
    from outrider.protos.v1.internal.control_pb2_grpc import ControlAsyncStub

Asked = TypeVar("Asked")
Answered = TypeVar("Answered")


class AsyncStream(wire.Transcript):
    """One answer on its way: `async for` its chunks, then read `result`; see `Stream`."""

    def __aiter__(self) -> AsyncIterator[Chunk]:
        return self

    async def __anext__(self) -> Chunk:
        try:
            return self._add(await anext(aiter(self._call)))
        except grpc.RpcError as error:
            raise self._failure(error) from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():  # not the stream: its reader is cancelled
                raise
            raise Cancelled("the stream was closed", grpc.StatusCode.CANCELLED) from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


class AsyncClient(Connected):
    """Talks to one worker or to all targets of a service from one event loop; see `Client`.

    Names in a list of several addresses are looked up here, which blocks the loop meanwhile.
    """

    LIBRARY = aio
    _inference: "InferenceAsyncStub"
    _control: "ControlAsyncStub"

    def generate(self, prompt: Prompt, **options: Unpack[Options]) -> AsyncStream:
        """Begin an answer; see `Options`. A refusal is raised by the first iteration."""
        request = wire.generate_request(prompt, options)
        carried = self._call_options(options.get("timeout"))
        return AsyncStream(self._inference.Generate(request, **carried))

    async def complete(self, prompt: Prompt, **options: Unpack[Options]) -> Result:
        """The whole answer at once."""
        async with self.generate(prompt, **wire.whole(options)) as stream:
            async for _ in stream:
                pass
            return stream.result

    async def tokenize(
        self,
        prompt: str | Sequence[Message],
        *,
        model: str = "",
        tools: Sequence[Mapping[str, Any]] = (),
        timeout: float | None = None,
    ) -> tuple[int, ...]:
        """The token ids that `generate` would run for this prompt."""
        request = wire.tokenize_request(prompt, model, tools)
        return tuple((await self._call(self._inference.Tokenize, request, timeout)).ids)

    async def detokenize(
        self, ids: Sequence[int], *, model: str = "", timeout: float | None = None
    ) -> str:
        """The text of token ids; special tokens have none."""
        request = wire.detokenize_request(ids, model)
        return (await self._call(self._inference.Detokenize, request, timeout)).text

    async def models(self, *, timeout: float | None = None) -> tuple[Model, ...]:
        """Return the models that this target serves."""
        request = inference_pb2.ListModelsRequest()
        found = await self._call(self._inference.ListModels, request, timeout)
        return tuple(wire.read(Model, one) for one in found.models)

    async def state(self, *, timeout: float | None = None) -> State:
        """Return the state of this worker, target or draft; of one, where there are several."""
        request = control_pb2.GetStateRequest()
        found = await self._call(self._control.GetState, request, timeout)
        return wire.read(State, found)

    async def timeline(self, *, timeout: float | None = None) -> tuple[TimelineSpan, ...]:
        """Return what this worker computed lately, by lanes; of one, where there are several."""
        request = control_pb2.GetTimelineRequest()
        found = await self._call(self._control.GetTimeline, request, timeout)
        return tuple(wire.read(TimelineSpan, one) for one in found.spans)

    async def set_policy(self, policy: PolicySettings, *, timeout: float | None = None) -> State:
        """Replace the policy unless a newer version is in force; return the state after it."""
        request = wire.policy_request(policy)
        found = await self._call(self._control.SetPolicy, request, timeout)
        return wire.read(State, found)

    async def drain(self, grace_seconds: float, *, timeout: float | None = None) -> int:
        """Make the worker finish what runs and stop; return how many sequences still run."""
        request = control_pb2.DrainRequest(grace_seconds=grace_seconds)
        return (await self._call(self._control.Drain, request, timeout)).running

    async def close(self) -> None:
        """Close the connections and cancel what runs on them."""
        for channel in self._channels:
            await channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _call(
        self,
        method: "aio.UnaryUnaryMultiCallable[Asked, Answered]",
        request: Asked,
        timeout: float | None,
    ) -> Answered:
        try:
            return await method(request, **self._call_options(timeout))
        except grpc.RpcError as error:
            raise from_rpc(error) from None
