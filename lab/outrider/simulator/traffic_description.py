"""Description of a simulation's traffic: when requests come, and how long they are."""

import enum
from typing import Annotated, NoReturn, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from outrider.operator.spec.part import Count, SpecPart

Rate = Annotated[float, Field(ge=0.0001, le=1_000_000)]
Tokens = Annotated[Count, Field(ge=1, le=1 << 20)]


class Arrivals(enum.StrEnum):
    """Distribution of arrivals over time."""

    POISSON = "Poisson"
    CONSTANT = "Constant"
    BURST = "Burst"


class Stress(enum.StrEnum):
    """Traces of Nightjar's evaluation (arXiv 2512.22420), in requests a second and requests."""

    SPIKE = "Spike"
    OSCILLATION = "Oscillation"
    MIGRATION = "Migration"


class TraceFormat(enum.StrEnum):
    """Formats of trace files."""

    AZURE = "Azure"
    MOONCAKE = "Mooncake"


class Routing(enum.StrEnum):
    """How requests are shared out over targets."""

    ROUND_ROBIN = "RoundRobin"
    RANDOM = "Random"


class Stage(SpecPart):
    """A stretch of Poisson arrivals."""

    rate: Rate
    """Requests a second, of the whole service."""
    requests: Annotated[Count, Field(ge=1, le=10_000_000)]
    """Requests until the next stage."""


class Trace(SpecPart):
    """A file of requests."""

    file: Annotated[str, Field(min_length=1, max_length=4096)]
    """The file, relative to this one."""
    format: TraceFormat
    """Azure: CSV with TIMESTAMP, ContextTokens, GeneratedTokens. Mooncake: JSON lines with
    timestamp (milliseconds), input_length, output_length and hash_ids (of 512 tokens)."""
    speed: Annotated[float, Field(ge=0.001, le=1000)] = 1.0
    """Times faster than it was recorded."""


class Lengths(SpecPart):
    """Distribution of numbers of tokens: gamma, cut at `most`, or any of `values`."""

    mean: Annotated[float, Field(ge=1, le=1 << 20)] | None = None
    """Mean before it is cut."""
    values: Annotated[list[Tokens], Field(min_length=1, max_length=10_000)] | None = None
    """Instead of `mean` and `variation`: numbers as they were measured, each drawn as often."""
    variation: Annotated[float, Field(ge=0, le=4)] = 0.0
    """Deviation by mean; 0, or less than 1e-6: all are equal, 1: exponential."""
    most: Tokens = 1 << 20
    """The longest."""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.mean is None) == (self.values is None):
            refuse("", "allowed: either mean, or values")
        if self.values is not None and self.variation:
            refuse("variation", "not allowed beside values")
        return self


class Traffic(SpecPart):
    """Requests of the whole service: one of `rate`, `concurrency`, `stages`, `stress`, `trace`."""

    rate: Rate | None = None
    """Requests a second."""
    arrivals: Arrivals = Arrivals.POISSON
    """Poisson, Constant, or Burst: `burstSize` at once."""
    burst_size: Annotated[Count, Field(ge=1, le=100_000)] = 8
    """Requests of a burst."""
    concurrency: Annotated[Count, Field(ge=1, le=1_000_000)] | None = None
    """Requests that are open at all times: each is sent when one ends, or 0.1 s after a refusal."""
    stages: Annotated[list[Stage], Field(min_length=1, max_length=1000)] | None = None
    """Stretches of Poisson arrivals, one after the other."""
    stress: Stress | None = None
    """Spike, Oscillation or Migration."""
    stress_scale: Annotated[float, Field(ge=0.0001, le=25_000)] = 1.0
    """Factor of the rates and requests of `stress`."""
    trace: Trace | None = None
    """A file of requests; it ends with it."""
    routing: Routing = Routing.ROUND_ROBIN
    """RoundRobin as clients do, or Random as a Kubernetes Service does."""
    prompt_tokens: Lengths = Lengths(mean=256.0)
    """Lengths of prompts, but for a trace."""
    answer_tokens: Lengths = Lengths(mean=200.0)
    """Lengths of answers, but for a trace."""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        ways = ("rate", "concurrency", "stages", "stress", "trace")
        given = [name for name in ways if getattr(self, name) is not None]
        if len(given) != 1:
            found = " and ".join(given) or "none"
            refuse("", f"{found} is not allowed; allowed: one of {', '.join(ways)}")
        return self


def refuse(field: str, words: str) -> NoReturn:
    """Raise what pydantic turns into a `ValidationError`, about a field of the part it checks."""
    raise PydanticCustomError("rules", "{field}: {words}", {"field": field, "words": words})
