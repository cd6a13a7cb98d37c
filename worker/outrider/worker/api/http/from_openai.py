"""Turns a body into what the target is asked: a `GenerateRequest` for each prompt.

The one place that knows OpenAI's defaults, which are not those of the gRPC API.
"""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from outrider.protos.v1 import inference_pb2 as pb
from outrider.worker.api.http import schemas
from outrider.worker.api.http.schemas import MAX_CHOICES, Body, ChatBody, CompletionBody
from outrider.worker.api.http.tool_calls import Calling
from outrider.worker.errors import InvalidField

TEMPERATURE = 1.0
COMPLETION_TOKENS = 16
MAX_BIASES = 1024
"""As in the gRPC request."""
SEED_BITS = 53
"""Of a seed that is drawn: any reader of JSON has such a number exactly."""
ROLES = {"developer": "system"}
"""OpenAI's newer name, and the one that chat templates know."""
SAMPLING = (
    "top_p",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
)


@dataclass(frozen=True, slots=True)
class Asked:
    """What one HTTP request asks for."""

    requests: tuple[pb.GenerateRequest, ...]
    """One for each prompt; `choices` answers are wanted to each."""
    choices: int
    seed: int
    """As the client sees it: a negative one stands for itself plus 2^64."""
    stream: bool
    include_usage: bool
    calling: Calling
    max_tokens: int | None
    """Where the body names none; None: all that the context has room for."""


def completion(body: CompletionBody) -> Asked:
    """Of a body of /v1/completions; raises `InvalidField`."""
    asked = _asked(body, len(body.prompt), Calling.NONE, COMPLETION_TOKENS)
    for request, prompt in zip(asked.requests, body.prompt, strict=True):
        if isinstance(prompt, str):
            request.text = prompt
        else:
            request.tokens.ids.extend(prompt)
        _put(request, "logprobs", body.logprobs)
    return asked


def chat(body: ChatBody) -> Asked:
    """Of a body of /v1/chat/completions; raises `InvalidField`."""
    asked = _asked(body, 1, _calling(body), None)
    (request,) = asked.requests
    request.chat.SetInParent()
    request.chat.tools_json = body.tools_json
    request.chat.messages.extend(_message(message) for message in body.messages)
    _put(request, "max_tokens", body.max_completion_tokens)
    if body.logprobs:
        request.logprobs = body.top_logprobs or 0
    if asked.calling.forced:
        request.format.json_schema = json.dumps(_schema_of_calls(body))
    return asked


def _asked(body: Body, prompts: int, calling: Calling, max_tokens: int | None) -> Asked:
    choices = body.n or 1
    if prompts * choices > MAX_CHOICES:
        limit = f"prompts times n may be at most {MAX_CHOICES}"
        raise InvalidField("n", f"{prompts} prompts times {choices}", limit)
    seed = secrets.randbits(SEED_BITS) if body.seed is None else body.seed
    return Asked(
        requests=tuple(_request(body, seed) for _ in range(prompts)),
        choices=choices,
        seed=seed,
        stream=bool(body.stream),
        include_usage=bool(body.stream_options and body.stream_options.include_usage),
        calling=calling,
        max_tokens=max_tokens,
    )


def _request(body: Body, seed: int) -> pb.GenerateRequest:
    """Everything but the prompt."""
    request = pb.GenerateRequest(
        model=body.model or "", stop=body.stop or (), ignore_end=bool(body.ignore_eos)
    )
    for name in ("max_tokens", "speculate", "priority"):
        _put(request, name, getattr(body, name))
    request.sampling.seed = seed % 2**64
    request.sampling.temperature = TEMPERATURE if body.temperature is None else body.temperature
    for name in SAMPLING:
        _put(request.sampling, name, getattr(body, name))
    if body.top_k is not None:
        request.sampling.top_k = max(body.top_k, 0)  # -1 keeps all, as in other servers
    _put_biases(request, body.logit_bias or {})
    _put_format(request, body.response_format)
    return request


def _put_format(request: pb.GenerateRequest, wanted: schemas.ResponseFormat | None) -> None:
    if wanted is None or wanted.type == "text":
        return
    if wanted.json_schema is None:
        request.format.json_object = True
    else:
        request.format.json_schema = json.dumps(wanted.json_schema.schema_)


def _put_biases(request: pb.GenerateRequest, biases: Mapping[str, float]) -> None:
    if len(biases) > MAX_BIASES:
        raise InvalidField("logit_bias", f"{len(biases)} tokens", f"at most {MAX_BIASES}")
    for token, bias in biases.items():
        request.sampling.logit_bias[_token_id(token)] = bias


def _token_id(key: str) -> int:
    if key.isascii() and key.isdigit() and int(key[:11]) <= schemas.MAX_UINT:
        return int(key[:11])
    raise InvalidField("logit_bias", key[:32], "its keys must be token ids")


def _calling(body: ChatBody) -> Calling:
    if not body.tools_json:
        return Calling.NONE
    if body.tool_choice in (None, "auto"):
        return Calling.ONE if body.parallel_tool_calls is False else Calling.MANY
    return Calling.FORCED


def _schema_of_calls(body: ChatBody) -> Mapping[str, Any]:
    """What an answer that must be a call looks like."""
    functions = [tool.function for tool in body.tools or ()]
    if isinstance(body.tool_choice, schemas.NamedTool):
        name = body.tool_choice.function.name
        functions = [function for function in functions if function.name == name]
    forms = [schemas.schema_of(function) for function in functions]
    return forms[0] if len(forms) == 1 else {"anyOf": forms}


def _message(message: schemas.ChatMessage) -> pb.ChatMessage:
    calls = message.tool_calls
    return pb.ChatMessage(
        role=ROLES.get(message.role, message.role),
        content=message.content,
        tool_calls_json=json.dumps(calls) if calls else "",
        tool_call_id=message.tool_call_id or "",
        name=message.name or "",
    )


def _put(message: Any, name: str, value: object) -> None:
    """Sets a field unless the body leaves it out."""
    if value is not None:
        setattr(message, name, value)
