"""Messages of the `Inference` service to plain requests, and plain responses to messages.

Checks no value, and counts only what would be sorted: limits are those of `request`, `prompt` and
`response_format`.
"""

import dataclasses
import secrets
from typing import Any

from google.protobuf.message import Message

from outrider.contract.inference import Likely
from outrider.protos.v1 import inference_pb2 as pb
from outrider.worker.api.prompt import Chat
from outrider.worker.api.request import GenerateRequest
from outrider.worker.api.response import GenerateResponse
from outrider.worker.api.response_format import ResponseFormat
from outrider.worker.errors import InvalidField
from outrider.worker.messages import Finish
from outrider.worker.sampling.params import MAX_BIASES

FINISH_REASONS = {
    Finish.STOP: pb.FINISH_REASON_STOP,
    Finish.LENGTH: pb.FINISH_REASON_LENGTH,
}


def generate_request(message: pb.GenerateRequest) -> GenerateRequest:
    """Convert a request; fields that are not set take their defaults, the seed a random one."""
    return GenerateRequest(
        prompt=prompt_of(message, "prompt"),
        sampling=_sampling(message.sampling),
        model=message.model,
        max_tokens=_optional(message, "max_tokens"),
        stop=message.stop,
        ignore_end=message.ignore_end,
        speculate=not message.HasField("speculate") or message.speculate,
        priority=message.priority,
        logprobs=_optional(message, "logprobs"),
        response_format=_format(message.format) if message.HasField("format") else None,
        stream_interval_ms=_optional(message, "stream_interval_ms"),
        prediction=message.prediction if message.HasField("prediction") else (),
    )


def generate_response(response: GenerateResponse) -> pb.GenerateResponse:
    """Convert part of an answer."""
    message = pb.GenerateResponse(
        token_ids=response.token_ids,
        text=response.text,
        passes=response.passes,
        logprobs=[
            pb.TokenLogprobs(token=_likely(one.token), top=map(_likely, one.top))
            for one in response.logprobs
        ],
    )
    if (end := response.end) is not None:
        message.finish_reason = FINISH_REASONS[end.finish]
        message.usage.CopyFrom(pb.Usage(**dataclasses.asdict(end.usage)))
        message.timing.CopyFrom(pb.Timing(**dataclasses.asdict(end.timing)))
        message.seed = end.seed
    return message


def prompt_of(message: Any, oneof: str) -> Any:
    """Return the `Prompt` of a request, in its field of that name; None: it has none."""
    match message.WhichOneof(oneof):
        case "text":
            return message.text
        case "chat":
            return Chat(message.chat.messages, message.chat.tools_json)
        case "tokens":
            return message.tokens.ids
        case _:
            return None


def _sampling(message: pb.Sampling) -> dict[str, Any]:
    values: dict[str, Any] = {"seed": secrets.randbits(64)}
    values |= {field.name: value for field, value in message.ListFields()}
    if (count := len(message.logit_bias)) > MAX_BIASES:
        words = f"it has at most {MAX_BIASES} tokens"
        raise InvalidField("sampling.logit_bias", f"{count} tokens", words)
    return values | {"logit_bias": tuple(sorted(message.logit_bias.items()))}


def _format(message: pb.Format) -> ResponseFormat:
    which = message.WhichOneof("form")
    return ResponseFormat() if which is None else ResponseFormat(**{which: getattr(message, which)})


def _likely(likely: Likely) -> pb.Likely:
    return pb.Likely(id=likely.token_id, logprob=likely.logprob, text=likely.text)


def _optional(message: Message, name: str) -> Any:
    """Return the value of an optional field; None: it is not set."""
    return getattr(message, name) if message.HasField(name) else None
