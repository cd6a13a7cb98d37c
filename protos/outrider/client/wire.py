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
from outrider.client.errors import ClientError, Incomplete, InvalidRequest, from_rpc
from outrider.client.request import Options, Prompt
from outrider.contract.inference import (
    MAX_STREAM_INTERVAL_MS,
    Likely,
    Message,
    Timing,
    TokenLogprobs,
    Usage,
)
from outrider.contract.settings import PolicySettings
from outrider.contract.state import LinkState
from outrider.protos.v1 import inference_pb2
from outrider.protos.v1.internal import control_pb2

T = TypeVar("T")
Sent = TypeVar("Sent", bound=Proto)

SCALARS = (
    *("model", "max_tokens", "speculate", "ignore_end", "priority", "logprobs"),
    *("stream_interval_ms", "stop", "prediction"),
)
"""Options that a request carries as they are."""
TURN = ("role", "content", "tool_call_id", "name", "reasoning_content")
"""Fields of a turn that a message carries as they are."""
FINISH_REASONS = {
    inference_pb2.FINISH_REASON_STOP: FinishReason.STOP,
    inference_pb2.FINISH_REASON_LENGTH: FinishReason.LENGTH,
}
LINK_STATES = {
    control_pb2.LINK_STATE_CONNECTING: LinkState.CONNECTING,
    control_pb2.LINK_STATE_UP: LinkState.UP,
    control_pb2.LINK_STATE_REFUSED: LinkState.REFUSED,
}
MAX_MEMBERS = 4096
"""Most members of one list of a message that are made objects: no worker says more of itself."""


def generate_request(prompt: Prompt, options: Options) -> inference_pb2.GenerateRequest:
    """The message of one request; raises `InvalidRequest` for values that no message can carry."""
    form, sampling = options.get("format"), options.get("sampling")
    return _made(
        inference_pb2.GenerateRequest,
        **_prompt(prompt, options.get("tools", ())),
        **{name: options.get(name) for name in SCALARS},
        format=form and _made(inference_pb2.Format, **dataclasses.asdict(form)),
        sampling=sampling and _made(inference_pb2.Sampling, **dataclasses.asdict(sampling)),
    )


def whole(options: Options) -> Options:
    """The options of an answer that nobody reads before its end: its tokens come seldom."""
    if options.get("stream_interval_ms") is not None:
        return options
    return {**options, "stream_interval_ms": MAX_STREAM_INTERVAL_MS}


def tokenize_request(
    prompt: str | Sequence[Message], model: str, tools: Sequence[Mapping[str, Any]] = ()
) -> inference_pb2.TokenizeRequest:
    """The message that asks for the ids of text or a conversation."""
    return _made(inference_pb2.TokenizeRequest, model=model, **_prompt(prompt, tools))


def detokenize_request(ids: Sequence[int], model: str) -> inference_pb2.DetokenizeRequest:
    """The message that asks for the text of token ids."""
    return _made(inference_pb2.DetokenizeRequest, model=model, ids=ids)


def policy_request(policy: PolicySettings) -> control_pb2.SetPolicyRequest:
    """The message that replaces a worker's policy."""
    sent = _made(control_pb2.Policy, **dataclasses.asdict(policy))
    return control_pb2.SetPolicyRequest(policy=sent)


def chunk(response: inference_pb2.GenerateResponse) -> Chunk:
    """The tokens of one message."""
    logprobs = tuple(map(_logprobs, response.logprobs))
    return Chunk(response.text, tuple(response.token_ids), response.passes, logprobs)


def read(kind: type[T], message: Any) -> T:
    """Copy the fields that `kind` has from `message`, which has others, too, if it is newer.

    Raises `ValueError` for a list that is longer than any worker's.
    """
    copied = {
        name: None
        if isinstance(hint, UnionType) and not message.HasField(name)
        else _value(hint, getattr(message, name))
        for name, hint in _hints(cast(Any, kind)).items()
    }
    return kind(**copied)


def _value(hint: Any, value: Any) -> Any:
    """Convert the value of a field to the type of the same field of `kind`."""
    if isinstance(hint, UnionType):
        hint = get_args(hint)[0]
    if hint is LinkState:
        return LINK_STATES.get(value, LinkState.UNKNOWN)
    if get_origin(hint) in (tuple, dict) and len(value) > MAX_MEMBERS:
        raise ValueError(f"it has a list of {len(value)} members; at most {MAX_MEMBERS} are read")
    if get_origin(hint) is tuple:
        return tuple(_value(get_args(hint)[0], one) for one in value)
    if get_origin(hint) is dict:
        return dict(value)
    return read(hint, value) if isinstance(value, Proto) else hint(value)


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    """Return the types of the fields of a dataclass or a named tuple."""
    hints = get_type_hints(kind)
    if not dataclasses.is_dataclass(kind):
        return hints
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


class Transcript:
    """An answer on its way: its messages until the last one, which carries the finish reason."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._chunks: list[Chunk] = []
        self._last: inference_pb2.GenerateResponse | None = None

    @property
    def result(self) -> Result:
        """The whole answer, once the stream is exhausted; `Incomplete` before that."""
        if self._last is None:
            raise Incomplete
        return Result(
            text="".join(one.text for one in self._chunks),
            token_ids=tuple(token for one in self._chunks for token in one.token_ids),
            finish_reason=FINISH_REASONS[self._last.finish_reason],
            usage=read(Usage, self._last.usage),
            timing=read(Timing, self._last.timing),
            seed=self._last.seed,
            logprobs=tuple(given for one in self._chunks for given in one.logprobs),
        )

    def close(self) -> None:
        """Cancel the call if it still runs."""
        self._call.cancel()

    def _add(self, response: inference_pb2.GenerateResponse) -> Chunk:
        """Take the next message and return its tokens."""
        self._chunks.append(chunk(response))
        if response.finish_reason:
            self._last = response
        return self._chunks[-1]

    def _failure(self, error: grpc.RpcError) -> ClientError:
        """Return the error that ended the answer."""
        return from_rpc(error, sum(len(one.token_ids) for one in self._chunks))


def _logprobs(message: inference_pb2.TokenLogprobs) -> TokenLogprobs:
    return TokenLogprobs(_likely(message.token), tuple(map(_likely, message.top)))


def _likely(message: inference_pb2.Likely) -> Likely:
    return Likely(message.id, message.logprob, message.text)


def _prompt(prompt: Prompt, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the field of a request that holds the prompt."""
    if isinstance(prompt, str):
        return {"text": prompt}
    if prompt and isinstance(prompt[0], Message):
        turns = [
            _made(
                inference_pb2.ChatMessage,
                tool_calls_json=_json(turn.tool_calls),
                **{name: getattr(turn, name) for name in TURN},
            )
            for turn in cast(Sequence[Message], prompt)
        ]
        return {"chat": _made(inference_pb2.Chat, messages=turns, tools_json=_json(tools))}
    return {"tokens": _made(inference_pb2.TokenIds, ids=prompt)}


def _json(objects: Sequence[Mapping[str, Any]]) -> str | None:
    """None leaves the field unset."""
    return json.dumps(list(objects)) if objects else None


def _made(kind: type[Sent], **fields: Any) -> Sent:
    """Return a message with these fields, but for those that are None."""
    made = kind()
    for name, value in fields.items():
        try:
            made.MergeFrom(kind(**{name: value}))
        except (TypeError, ValueError) as error:
            text = f"{name}: {_wrong(kind, name, value)!r} cannot be sent: {error}"
            raise InvalidRequest(text, grpc.StatusCode.INVALID_ARGUMENT) from None
    return made


def _wrong(kind: type[Proto], name: str, value: Any) -> Any:
    """Return the value that a field cannot hold: of several, the first."""
    for one in value if isinstance(value, Sequence) and not isinstance(value, str) else ():
        try:
            kind(**{name: [one]})
        except (TypeError, ValueError):
            return one
    return value
