"""Turns requests into messages and messages into answers; the only file here that knows messages.

Opens no connection: `outrider.client.sync` and `outrider.client.aio` share all of it.
"""

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

import grpc
from google.protobuf.message import Message as Proto

from outrider.client.answer import Chunk, FinishReason, Result
from outrider.client.errors import Incomplete, InvalidRequest
from outrider.client.request import Options, Prompt, Sampling
from outrider.contract.inference import (
    MAX_STREAM_INTERVAL_MS,
    Likely,
    Message,
    Model,
    Timing,
    TokenLogprobs,
    Usage,
)
from outrider.contract.settings import PolicySettings
from outrider.contract.state import (
    Link,
    LinkState,
    State,
    TimelineSpan,
)
from outrider.protos.v1 import control_pb2, inference_pb2

T = TypeVar("T")

SCALARS = (
    *("model", "max_tokens", "speculate", "ignore_end", "priority", "logprobs"),
    "stream_interval_ms",
)
"""Options that a request carries as they are."""
FINISH_REASONS = {
    inference_pb2.FINISH_REASON_STOP: FinishReason.STOP,
    inference_pb2.FINISH_REASON_LENGTH: FinishReason.LENGTH,
}
LINK_STATES = {
    control_pb2.LINK_STATE_CONNECTING: LinkState.CONNECTING,
    control_pb2.LINK_STATE_UP: LinkState.UP,
    control_pb2.LINK_STATE_REFUSED: LinkState.REFUSED,
}


def generate_request(prompt: Prompt, options: Options) -> inference_pb2.GenerateRequest:
    """The message of one request; raises `InvalidRequest` for values that no message can carry."""
    request = inference_pb2.GenerateRequest()
    _put_prompt(request, prompt, options.get("tools", ()))
    for name in SCALARS:
        _put(request, name, options.get(name))
    for text in options.get("stop", ()):
        _append(request, "stop", text)
    form = options.get("format")
    if form is not None:
        request.format.SetInParent()
        for field in dataclasses.fields(form):
            _put(request.format, field.name, getattr(form, field.name))
    sampling = options.get("sampling")
    if sampling is not None:
        request.sampling.SetInParent()
        _put_sampling(request.sampling, sampling)
    return request


def whole(options: Options) -> Options:
    """The options of an answer that nobody reads before its end: its tokens come seldom."""
    if options.get("stream_interval_ms") is not None:
        return options
    return {**options, "stream_interval_ms": MAX_STREAM_INTERVAL_MS}


def tokenize_request(
    prompt: str | Sequence[Message], model: str, tools: Sequence[Mapping[str, Any]] = ()
) -> inference_pb2.TokenizeRequest:
    """The message that asks for the ids of text or a conversation."""
    request = inference_pb2.TokenizeRequest()
    _put(request, "model", model)
    _put_prompt(request, prompt, tools)
    return request


def detokenize_request(ids: Sequence[int], model: str) -> inference_pb2.DetokenizeRequest:
    """The message that asks for the text of token ids."""
    request = inference_pb2.DetokenizeRequest()
    _put(request, "model", model)
    for token in ids:
        _append(request, "ids", token)
    return request


def policy_request(policy: PolicySettings) -> control_pb2.SetPolicyRequest:
    """The message that replaces a worker's policy."""
    request = control_pb2.SetPolicyRequest()
    for field in dataclasses.fields(policy):
        if field.name not in ("drafts", "sources"):
            _put(request.policy, field.name, getattr(policy, field.name))
    request.policy.drafts.extend(policy.drafts)
    request.policy.sources.extend(policy.sources)
    return request


def chunk(response: inference_pb2.GenerateResponse) -> Chunk:
    """The tokens of one message."""
    logprobs = tuple(map(_logprobs, response.logprobs))
    return Chunk(response.text, tuple(response.token_ids), response.passes, logprobs)


def models(response: inference_pb2.ListModelsResponse) -> tuple[Model, ...]:
    """Convert the models that a target serves."""
    return tuple(_plain(Model, message) for message in response.models)


def state(message: control_pb2.State) -> State:
    """Convert a worker's state."""
    links = (
        _plain(Link, link, state=LINK_STATES.get(link.state, LinkState.UNKNOWN))
        for link in message.links
    )
    return _plain(State, message, links=tuple(links))


def timeline(message: control_pb2.Timeline) -> tuple[TimelineSpan, ...]:
    """Convert what a worker computed lately."""
    names = TimelineSpan._fields
    return tuple(TimelineSpan(*(getattr(one, name) for name in names)) for one in message.spans)


class Transcript:
    """Collects the messages of one answer until the last one, which carries the finish reason."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._token_ids: list[int] = []
        self._logprobs: list[TokenLogprobs] = []
        self._last: inference_pb2.GenerateResponse | None = None

    @property
    def tokens(self) -> int:
        """Number of tokens that have come."""
        return len(self._token_ids)

    def add(self, response: inference_pb2.GenerateResponse) -> Chunk:
        """Take the next message and return its tokens."""
        piece = chunk(response)
        self._texts.append(piece.text)
        self._token_ids.extend(piece.token_ids)
        self._logprobs.extend(piece.logprobs)
        if response.finish_reason:
            self._last = response
        return piece

    def result(self) -> Result:
        """The whole answer; raises `Incomplete` if its last message has not come."""
        if self._last is None:
            raise Incomplete
        return Result(
            text="".join(self._texts),
            token_ids=tuple(self._token_ids),
            finish_reason=FINISH_REASONS[self._last.finish_reason],
            usage=_plain(Usage, self._last.usage),
            timing=_plain(Timing, self._last.timing),
            seed=self._last.seed,
            logprobs=tuple(self._logprobs),
        )


def _logprobs(message: inference_pb2.TokenLogprobs) -> TokenLogprobs:
    return TokenLogprobs(_likely(message.token), tuple(map(_likely, message.top)))


def _likely(message: inference_pb2.Likely) -> Likely:
    return Likely(message.id, message.logprob, message.text)


def _put_prompt(
    request: inference_pb2.GenerateRequest | inference_pb2.TokenizeRequest,
    prompt: Prompt,
    tools: Sequence[Mapping[str, Any]],
) -> None:
    if isinstance(prompt, str):
        _put(request, "text", prompt)
    elif prompt and isinstance(prompt[0], Message):
        request.chat.SetInParent()
        for turn in cast(Sequence[Message], prompt):
            added = request.chat.messages.add()
            for name in ("role", "content", "tool_call_id", "name"):
                _put(added, name, getattr(turn, name))
            _put(added, "tool_calls_json", _json(turn.tool_calls))
        _put(request.chat, "tools_json", _json(tools))
    elif isinstance(request, inference_pb2.GenerateRequest):
        request.tokens.SetInParent()
        for token in cast(Sequence[int], prompt):
            _append(request.tokens, "ids", token)


def _put_sampling(message: inference_pb2.Sampling, sampling: Sampling) -> None:
    for field in dataclasses.fields(sampling):
        if field.name != "logit_bias":
            _put(message, field.name, getattr(sampling, field.name))
    for token, bias in (sampling.logit_bias or {}).items():
        try:
            message.logit_bias[token] = bias
        except (TypeError, ValueError) as error:
            raise _refusal("logit_bias", {token: bias}, error) from None


def _json(objects: Sequence[Mapping[str, Any]]) -> str | None:
    """None leaves the field unset."""
    return json.dumps(list(objects)) if objects else None


def _put(message: Proto, name: str, value: object) -> None:
    """Set a field unless the value is None."""
    if value is None:
        return
    try:
        setattr(message, name, value)
    except ValueError as error:
        raise _refusal(name, value, error) from None


def _append(message: Proto, name: str, value: object) -> None:
    try:
        getattr(message, name).append(value)
    except ValueError as error:
        raise _refusal(name, value, error) from None


def _refusal(name: str, value: object, error: Exception) -> InvalidRequest:
    text = f"{name}: {value!r} cannot be sent: {error}"
    return InvalidRequest(text, grpc.StatusCode.INVALID_ARGUMENT)


def _plain(kind: type[T], message: Proto, **given: object) -> T:
    """Copy the fields that `kind` has from `message`, but for those that are given."""
    hints = {name: hint for name, hint in _hints(cast(Any, kind)).items() if name not in given}
    copied = {
        name: None
        if isinstance(hint, UnionType) and not message.HasField(name)
        else _value(hint, getattr(message, name))
        for name, hint in hints.items()
    }
    return kind(**copied, **given)


def _value(hint: Any, value: Any) -> Any:
    """Convert the value of a field to the type of the same field of a dataclass."""
    if isinstance(hint, UnionType):
        hint = get_args(hint)[0]
    if get_origin(hint) is tuple:
        return tuple(_value(get_args(hint)[0], one) for one in value)
    if get_origin(hint) is dict:
        return dict(value)
    if dataclasses.is_dataclass(hint):
        return _plain(cast(Any, hint), value)
    return hint(value)


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    """Return the types of a dataclass's fields; what else the class has is none of them."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(cast(Any, kind))}
