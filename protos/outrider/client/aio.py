"""The asyncio client: `outrider.client.sync` with awaits, and nothing else.

Leaves messages to `outrider.client.wire` and errors to `outrider.client.errors`.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Self, TypeVar, Unpack

import grpc
from grpc import aio

from outrider.client import wire
from outrider.client.answer import Chunk, Result
from outrider.client.channel import ClientCertificate, Tls, both, metadata
from outrider.client.errors import Cancelled, from_rpc
from outrider.client.request import Options, Prompt
from outrider.contract.inference import Message, Model
from outrider.contract.settings import PolicySettings
from outrider.contract.state import State, TimelineSpan
from outrider.protos.v1 import control_pb2, inference_pb2
from outrider.protos.v1.control_pb2_grpc import ControlStub
from outrider.protos.v1.inference_pb2_grpc import InferenceStub

Asked = TypeVar("Asked")
Answered = TypeVar("Answered")


class AsyncStream:
    """One answer on its way: `async for` its chunks, then read `result`; see `Stream`."""

    def __init__(
        self,
        call: "aio.UnaryStreamCall[inference_pb2.GenerateRequest, inference_pb2.GenerateResponse]",
    ) -> None:
        self._call = call
        self._messages = call.__aiter__()
        self._transcript = wire.Transcript()

    def __aiter__(self) -> AsyncIterator[Chunk]:
        return self

    async def __anext__(self) -> Chunk:
        try:
            return self._transcript.add(await anext(self._messages))
        except grpc.RpcError as error:
            raise from_rpc(error, self._transcript.tokens) from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():  # not the stream: its reader is cancelled
                raise
            raise Cancelled("the stream was closed", grpc.StatusCode.CANCELLED) from None

    @property
    def result(self) -> Result:
        """The whole answer, once the stream is exhausted; `Incomplete` before that."""
        return self._transcript.result()

    def close(self) -> None:
        """Cancel the call if it still runs."""
        self._call.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


class AsyncClient:
    """Talks to one worker or to all targets of a service from one event loop; see `Client`.

    Names in a list of several addresses are looked up here, which blocks the loop meanwhile.
    """

    def __init__(
        self,
        address: str | Sequence[str],
        *,
        timeout: float | None = None,
        api_key: str | None = None,
        tls: Tls = False,
        tls_name: str | None = None,
        certificate: ClientCertificate | None = None,
    ) -> None:
        self._channels = both(open_channel, address, tls, tls_name, certificate)
        self._metadata = metadata(api_key)
        self._inference = InferenceStub(self._channels[0])
        self._control = ControlStub(self._channels[1])
        self._timeout = timeout

    def generate(self, prompt: Prompt, **options: Unpack[Options]) -> AsyncStream:
        """Begin an answer; see `Options`. A refusal is raised by the first iteration."""
        request = wire.generate_request(prompt, options)
        return AsyncStream(
            self._inference.Generate(
                request,
                timeout=self._deadline(options.get("timeout")),
                metadata=self._metadata,
            )
        )

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
        return wire.models(await self._call(self._inference.ListModels, request, timeout))

    async def state(self, *, timeout: float | None = None) -> State:
        """Return the state of this worker, target or draft; of one, where there are several."""
        request = control_pb2.GetStateRequest()
        return wire.state(await self._call(self._control.GetState, request, timeout))

    async def timeline(self, *, timeout: float | None = None) -> tuple[TimelineSpan, ...]:
        """Return what this worker computed lately, by lanes; of one, where there are several."""
        request = control_pb2.GetTimelineRequest()
        return wire.timeline(await self._call(self._control.GetTimeline, request, timeout))

    async def set_policy(self, policy: PolicySettings, *, timeout: float | None = None) -> State:
        """Replace the policy unless a newer version is in force; return the state after it."""
        request = wire.policy_request(policy)
        return wire.state(await self._call(self._control.SetPolicy, request, timeout))

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

    def _deadline(self, timeout: float | None) -> float | None:
        return self._timeout if timeout is None else timeout

    async def _call(
        self,
        method: "aio.UnaryUnaryMultiCallable[Asked, Answered]",
        request: Asked,
        timeout: float | None,
    ) -> Answered:
        try:
            return await method(request, timeout=self._deadline(timeout), metadata=self._metadata)
        except grpc.RpcError as error:
            raise from_rpc(error) from None


def open_channel(uri: str, options: Any, checked: grpc.ChannelCredentials | None) -> aio.Channel:
    """A channel, with TLS if there is something to check its server with."""
    if checked is None:
        return aio.insecure_channel(uri, options=options)
    return aio.secure_channel(uri, checked, options=options)
