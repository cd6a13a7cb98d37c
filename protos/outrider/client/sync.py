"""The blocking client of one worker, or of all targets of a service.

Leaves the choice of a target to `outrider.client.channel`, messages to
`outrider.client.wire` and errors to `outrider.client.errors`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar, Unpack

import grpc

from outrider.client import wire
from outrider.client.answer import Chunk, Result
from outrider.client.channel import Connected
from outrider.client.errors import from_rpc
from outrider.client.request import Options, Prompt
from outrider.contract.inference import Message, Model
from outrider.contract.settings import PolicySettings
from outrider.contract.state import State, TimelineSpan
from outrider.protos.v1 import inference_pb2
from outrider.protos.v1.inference_pb2_grpc import InferenceStub
from outrider.protos.v1.internal import control_pb2
from outrider.protos.v1.internal.control_pb2_grpc import ControlStub

Asked = TypeVar("Asked")
Answered = TypeVar("Answered")


class Stream(wire.Transcript):
    """One answer on its way: iterate it for chunks, then read `result`.

    Closing it, or leaving its `with` block early, cancels the call and frees the request's memory
    on the server; iterating a cancelled stream raises `Cancelled`.
    """

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        try:
            return self._add(next(self._call))
        except grpc.RpcError as error:
            raise self._failure(error) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Client(Connected):
    """Talks to the worker at `address` (host:port); every method raises `ClientError`.

    `timeout` is the deadline of each call in seconds, where the call names none; None waits for
    ever. Connects with the first call, and again by itself after a loss.
    `api_key` goes with every call; `tls` is True, or the PEM certificates of the roots to trust.
    `tls_name` is the name that the certificate must hold where that is not the address's host;
    several addresses of more than one host need it. `certificate` says who calls, to a worker that
    wants to know.

    Several addresses ("a:1,b:2" or a list), or a name that stands for several, are the targets of
    one service:

    - Calls go round robin to those that are connected and say that they serve (grpc.health.v1).
    - A lost target gets no calls until it is connected and serves again; that is tried after
      0.2 s, and after ever longer waits up to 10 s.
    - A call that finds its target lost, stopping or with a full queue before the first token came
      is made again, at most 5 times within 0.3 s, each time at the address whose turn it is.
      `Overloaded` and `Unavailable` are what the last of them got. With one caller that is another
      address each time; among many callers a try can meet the same full target again.
    - After the first token nothing is tried again: `Unavailable` says how many tokens came.
    - One name is looked up again, at most every 5 s, when a connection is lost; names in a list
      are looked up once. `state`, `set_policy` and `drain` speak to one worker only, so give them
      a client of that worker's address.

    One IP address is one worker: there nothing is tried again.
    """

    LIBRARY = grpc
    _inference: InferenceStub
    _control: ControlStub

    def generate(self, prompt: Prompt, **options: Unpack[Options]) -> Stream:
        """Begin an answer; see `Options`. A refusal is raised by the first iteration."""
        request = wire.generate_request(prompt, options)
        carried = self._call_options(options.get("timeout"))
        return Stream(self._inference.Generate(request, **carried))

    def complete(self, prompt: Prompt, **options: Unpack[Options]) -> Result:
        """The whole answer at once."""
        with self.generate(prompt, **wire.whole(options)) as stream:
            for _ in stream:
                pass
            return stream.result

    def tokenize(
        self,
        prompt: str | Sequence[Message],
        *,
        model: str = "",
        tools: Sequence[Mapping[str, Any]] = (),
        timeout: float | None = None,
    ) -> tuple[int, ...]:
        """The token ids that `generate` would run for this prompt."""
        request = wire.tokenize_request(prompt, model, tools)
        return tuple(self._call(self._inference.Tokenize, request, timeout).ids)

    def detokenize(
        self, ids: Sequence[int], *, model: str = "", timeout: float | None = None
    ) -> str:
        """The text of token ids; special tokens have none."""
        request = wire.detokenize_request(ids, model)
        return self._call(self._inference.Detokenize, request, timeout).text

    def models(self, *, timeout: float | None = None) -> tuple[Model, ...]:
        """Return the models that this target serves."""
        request = inference_pb2.ListModelsRequest()
        found = self._call(self._inference.ListModels, request, timeout)
        return tuple(wire.read(Model, one) for one in found.models)

    def state(self, *, timeout: float | None = None) -> State:
        """Return the state of this worker, target or draft; of one, where there are several."""
        request = control_pb2.GetStateRequest()
        return wire.read(State, self._call(self._control.GetState, request, timeout))

    def timeline(self, *, timeout: float | None = None) -> tuple[TimelineSpan, ...]:
        """Return what this worker computed lately, by lanes; of one, where there are several."""
        request = control_pb2.GetTimelineRequest()
        found = self._call(self._control.GetTimeline, request, timeout)
        return tuple(wire.read(TimelineSpan, one) for one in found.spans)

    def set_policy(self, policy: PolicySettings, *, timeout: float | None = None) -> State:
        """Replace the policy unless a newer version is in force; return the state after it."""
        request = wire.policy_request(policy)
        return wire.read(State, self._call(self._control.SetPolicy, request, timeout))

    def drain(self, grace_seconds: float, *, timeout: float | None = None) -> int:
        """Make the worker finish what runs and stop; return how many sequences still run."""
        request = control_pb2.DrainRequest(grace_seconds=grace_seconds)
        return self._call(self._control.Drain, request, timeout).running

    def close(self) -> None:
        """Close the connections and cancel what runs on them."""
        for channel in self._channels:
            channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(
        self,
        method: "grpc.UnaryUnaryMultiCallable[Asked, Answered]",
        request: Asked,
        timeout: float | None,
    ) -> Answered:
        try:
            return method(request, **self._call_options(timeout))
        except grpc.RpcError as error:
            raise from_rpc(error) from None
