"""Bodies of the OpenAI API to requests for text.

The one place that knows OpenAI's defaults, which are not those of the gRPC API.
"""

import dataclasses
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from outrider.contract.inference import MAX_STREAM_INTERVAL_MS
from outrider.worker.api.fim import FimPrompt
from outrider.worker.api.http import schemas
from outrider.worker.api.http.schemas import MAX_CHOICES, Body, ChatBody, CompletionBody
from outrider.worker.api.http.tool_calls import Calling
from outrider.worker.api.prompt import Chat, Prompt
from outrider.worker.api.request import GenerateRequest
from outrider.worker.api.response import float32
from outrider.worker.api.response_format import FORM_KINDS, ResponseFormat
from outrider.worker.errors import GrammarFailed, InvalidField, WorkerError
from outrider.worker.sampling.params import SamplingParams

TEMPERATURE = 1.0
COMPLETION_TOKENS = 16
SEED_BITS = 53
"""Bits of a random seed: any reader of JSON has such a number exactly."""
NO_SEED = -1
"""As at vLLM and llama-server."""
LEAST_SHARE = float(np.finfo(np.float32).tiny)
SAMPLING = tuple(f.name for f in dataclasses.fields(SamplingParams) if f.name in Body.model_fields)


@dataclass(frozen=True, slots=True)
class OpenAIRequest:
    """One HTTP request: its prompts, and how each of them is answered."""

    prompts: tuple[Prompt, ...]
    request: GenerateRequest
    """For each prompt, without the prompt."""
    choices: int
    """Answers to each prompt."""
    seed: int
    """As the client sees it: a negative one stands for itself plus 2^64."""
    stream: bool
    include_usage: bool
    calling: Calling
    max_tokens: int | None
    """Where the body names none; None: all that the context has room for."""
    functions: tuple[str, ...] = ()
    """Functions that may be called; if forced, one of them has to be."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Names of the body's fields, by the gRPC request's, where the client chose between several."""
    prompt_only: bool = False
    """Whether the prompt is read and nothing is answered; /infill only."""
    response_fields: tuple[str, ...] = ()
    """Paths of the fields that the answer has; none: it has all. /infill only."""
    repeated: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the body that the answer repeats; /v1/responses only."""

    def rename(self, error: WorkerError) -> None:
        """Give an error about a field the name by which the client sent it."""
        if isinstance(error, InvalidField | GrammarFailed):
            error.field = self.names.get(error.field, error.field)


def completion(body: CompletionBody) -> OpenAIRequest:
    """Convert a body of /v1/completions; raise `InvalidField`."""
    prompts: tuple[Prompt, ...] = tuple(body.prompt)
    if suffix := body.suffix:
        room = COMPLETION_TOKENS if body.max_tokens is None else body.max_tokens
        prompts = tuple(FimPrompt(str(prefix), suffix, room) for prefix in body.prompt)
    parsed = parse(body, prompts, Calling.NONE, COMPLETION_TOKENS)
    request = dataclasses.replace(parsed.request, logprobs=body.logprobs, echo=bool(body.echo))
    return dataclasses.replace(parsed, request=request)


def chat(body: ChatBody) -> OpenAIRequest:
    """Convert a body of /v1/chat/completions; raise `InvalidField`."""
    prompt = Chat(body.messages, body.tools_json, body.layout)
    parsed = parse(body, (prompt,), _calling(body), None)
    changes: dict[str, Any] = {}
    names = {**parsed.names, "prompt": "messages", "logprobs": "top_logprobs"}
    if body.max_completion_tokens is not None:
        changes["max_tokens"] = body.max_completion_tokens
        names |= {"max_tokens": "max_completion_tokens"} if body.max_tokens is None else {}
    if body.logprobs:
        changes["logprobs"] = body.top_logprobs or 0
    functions, form = _functions(body), parsed.request.response_format
    if parsed.calling is Calling.FORCED:
        changes["response_format"] = _format_of_calls(functions)
        names["format"] = "tools"
    elif parsed.calling is not Calling.NONE and form is not None:
        calls = _format_of_calls(functions)
        changes["response_format"] = dataclasses.replace(form, calls=calls)
    return dataclasses.replace(
        parsed,
        request=dataclasses.replace(parsed.request, **changes),
        functions=tuple(one.name for one in functions),
        names=names,
    )


def parse(
    body: Body, prompts: tuple[Prompt, ...], calling: Calling, max_tokens: int | None
) -> OpenAIRequest:
    choices = body.n or 1
    if len(prompts) * choices > MAX_CHOICES:
        limit = f"prompts times n may be at most {MAX_CHOICES}"
        raise InvalidField("n", f"{len(prompts)} prompts times {choices}", limit)
    given = None if body.seed == NO_SEED else body.seed
    seed = secrets.randbits(SEED_BITS) if given is None else given
    return OpenAIRequest(
        prompts=prompts,
        request=_request(body, seed),
        choices=choices,
        seed=seed,
        stream=bool(body.stream),
        include_usage=bool(body.stream_options and body.stream_options.include_usage),
        calling=calling,
        max_tokens=max_tokens,
        names=_names_of_form(body),
    )


def _names_of_form(body: Body) -> dict[str, str]:
    """Return names of the fields that the form of the answer comes from, for refusals."""
    fields = ("format", *(f"format.{kind}" for kind in FORM_KINDS))
    return {field: name for name in body.forms for field in fields}


def _request(body: Body, seed: int) -> GenerateRequest:
    return GenerateRequest(
        prompt=None,
        sampling=_sampling(body, seed),
        temperature=TEMPERATURE,
        model=body.model or "",
        max_tokens=body.max_tokens,
        stop=tuple(body.stop or ()),
        stop_token_ids=tuple(body.stop_token_ids or ()),
        shows_stop=bool(body.include_stop_str_in_output),
        bad_words=tuple(body.bad_words or ()),
        ignore_end=bool(body.ignore_eos),
        speculate=body.speculate is not False,
        priority=body.priority or 0,
        response_format=next(iter(body.forms.values()), None),
        stream_interval_ms=body.stream_interval_ms if body.stream else MAX_STREAM_INTERVAL_MS,
        shows_tree=bool(body.draft_tree),
        prediction=body.prediction.content if body.prediction else (),
    )


def _sampling(body: Body, seed: int) -> dict[str, Any]:
    """Copy the parameters of the same name, in the precision of the gRPC API."""
    body_values = {name: getattr(body, name) for name in SAMPLING}
    given = {k: v for k, v in body_values.items() if v is not None}
    given = {k: float32(v) if isinstance(v, float) else v for k, v in given.items()}
    given["seed"] = seed % 2**64
    if given.get("top_k") == -1:  # keeps all, as in other servers
        given["top_k"] = 0
    if given.get("top_p") == 0:  # keeps the likeliest token, as in other servers
        given["top_p"] = LEAST_SHARE
    given["logit_bias"] = _biases(body.logit_bias or {})
    return given


def _biases(biases: Mapping[str, float]) -> tuple[tuple[int, float], ...]:
    by_token = {_token_id(token): float32(bias) for token, bias in biases.items()}
    return tuple(sorted(by_token.items()))


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


def _functions(body: ChatBody) -> list[schemas.Function]:
    """Return the functions that may be called."""
    functions = [tool.function for tool in body.tools or ()]
    if isinstance(body.tool_choice, schemas.NamedTool):
        name = body.tool_choice.function.name
        return [function for function in functions if function.name == name]
    return functions


def _format_of_calls(functions: Sequence[schemas.Function]) -> ResponseFormat:
    """Return the response format of an answer that is a call."""
    schema = schema_of_calls([(function.name, function.parameters) for function in functions])
    strict = any(function.strict for function in functions)
    return ResponseFormat(json_schema=json.dumps(schema), of_tools="chat.tools_json", strict=strict)


def schema_of_calls(functions: Sequence[tuple[str, Mapping[str, Any] | None]]) -> dict[str, Any]:
    """Return the schema of a call of one of the functions, of which there is at least one.

    Each is its name, which no other has, and the schema of its parameters; None: any object. Where
    these have references they get an `$id` of their own, so that what they name stays what it was.
    """
    shared: dict[str, Any] = {}
    calls = []
    for number, (name, parameters) in enumerate(functions):
        arguments: Mapping[str, Any] = parameters or {"type": "object"}
        if '"$ref"' in json.dumps(arguments):
            named = _named(arguments, f"https://tools.invalid/{number}/")
            shared[name], arguments = named, {"$ref": named["$id"]}
        calls.append(_call(name, arguments))
    schema = calls[0] if len(calls) == 1 else {"anyOf": calls}
    return schema | ({"$defs": shared} if shared else {})


def _named(schema: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a schema with an `$id`: its own, where that is more than an anchor."""
    own = schema.get("$id")
    is_name = isinstance(own, str) and own.partition("#")[0]
    return {**schema, "$id": own if is_name else name}


def _call(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"name": {"const": name}, "arguments": arguments},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }
