"""A request from the wire as the engine takes it: checked, and with defaults filled in.

Leaves the forms of a prompt to `prompts` and the form of an answer to `form`; admits nothing.
"""

import asyncio
import dataclasses
import itertools
import secrets
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from outrider.protos.v1 import inference_pb2 as pb
from outrider.worker.api.prompt import Prompts
from outrider.worker.api.response_format import ResponseFormats
from outrider.worker.errors import TooLong, UnknownModel
from outrider.worker.messages import Submit
from outrider.worker.sampling.params import SamplingParams, require

DEFAULT_MAX_TOKENS = 256
MAX_STOPS = 16
MAX_PRIORITY = 1000
MAX_LOGPROBS = 20
MAX_STOP_CHARACTERS = 1024
SHOWN_CHARACTERS = 64
"""Of a name that is refused: a refusal must fit gRPC's trailers."""


@dataclass(frozen=True, slots=True)
class Served:
    """The model behind the service."""

    name: str
    revision: str
    context: int
    vocabulary: int
    end_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RequestParser:
    """The requests of one model, in the engine's terms."""

    model: Served
    prompts: Prompts
    forms: ResponseFormats
    queue_seconds: float
    """Longest that a request waits for its first step."""
    _numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    async def parse(self, request: pb.GenerateRequest) -> Submit:
        """Domain request from the wire; raises `InvalidField` or `UnknownModel`."""
        arrived = time.monotonic()
        self.check_model(request.model)
        sampling = parse_sampling(request.sampling, self.model.vocabulary)
        check_stops(request.stop)
        prompt = await self.prompts.encode(request)
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

    def check_model(self, name: str) -> None:
        """Raises `UnknownModel` for a name that is neither this model's nor empty."""
        if name not in ("", self.model.name):
            raise UnknownModel(
                f"model: {name[:SHOWN_CHARACTERS]!r} is not served here; "
                f"allowed: {self.model.name!r}, or empty"
            )

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


def parse_sampling(sampling: pb.Sampling, vocabulary: int) -> SamplingParams:
    """Sampling settings with defaults filled in; a random seed if none is given.

    Raises `InvalidField`; token ids are below `vocabulary`.
    """
    given = {f.name: value for f, value in sampling.ListFields()}
    seed = given.pop("seed", None)
    given["logit_bias"] = tuple(sorted(sampling.logit_bias.items()))
    parsed = dataclasses.replace(
        SamplingParams(), seed=secrets.randbits(64) if seed is None else seed, **given
    )
    parsed.validate(vocabulary)
    return parsed


def check_priority(priority: int) -> int:
    """The priority; raises `InvalidField` for one out of its limits."""
    require(
        -MAX_PRIORITY <= priority <= MAX_PRIORITY,
        "priority",
        priority,
        f"it must be -{MAX_PRIORITY} to {MAX_PRIORITY}",
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
