"""Description of a simulation: what a YAML file may say, and its errors in words.

`speculation` is that of a SpeculativeService, and means the same. Leaves traffic to
`traffic_description`, and what follows from the numbers to `cell`.
"""

import enum
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError, model_validator

from outrider.contract.settings import MAX_CONTEXT, MAX_RUNNING
from outrider.operator.spec.document import SpecError, read_document
from outrider.operator.spec.part import Count, SpecPart
from outrider.operator.spec.speculation import Speculation
from outrider.operator.spec.validation_errors import describe
from outrider.simulator.language import Pair
from outrider.simulator.traffic_description import Traffic, refuse

Share = Annotated[float, Field(ge=0, le=1)]
Micros = Annotated[float, Field(ge=0, le=10_000_000)]
MoreMicros = Annotated[float, Field(ge=-10_000_000, le=10_000_000)]
Millis = Annotated[float, Field(ge=0.0001, le=1_000_000)]
Replicas = Annotated[Count, Field(ge=1, le=100_000)]


class Costs(SpecPart):
    """Step costs of a model on its device: from `outrider profile`, or numbers from elsewhere."""

    profile: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    """JSON that `outrider profile --json` printed, relative to this file."""
    threads: Annotated[Count, Field(ge=1, le=1024)] | None = None
    """Number of threads whose costs are taken from `profile`; left out, the most."""
    rows: Annotated[list[Annotated[Count, Field(ge=1, le=65_536)]], Field(max_length=64)] | None = (
        None
    )
    """Row counts whose passes are known, rising; between and beyond, straight lines."""
    milliseconds: Annotated[list[Millis], Field(max_length=64)] | None = None
    """Milliseconds of a pass of each of `rows`, with no context."""
    context_microseconds: Micros = 0.0
    """More for each sequence of a pass and 1,000 tokens of its context."""
    prefill_share: Annotated[float, Field(ge=0.01, le=1)] = 1.0
    """Share of the time of a further row that a row of a prompt adds."""
    pass_microseconds: MoreMicros = 0.0
    """What a pass takes in a service beyond these costs: `outrider profile` times a model alone,
    and takes the least. May be negative; a pass takes a tenth of its cost at least."""
    pass_microseconds_per_sequence: MoreMicros = 0.0
    """More of it for each sequence of a pass."""
    variation: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Deviation of the seconds of equal passes by their mean, from one stretch of 4 s to the next,
    as on a shared host. A Colocated draft has its target's."""
    host_microseconds: Micros = 0.0
    """Host time between two passes."""
    host_microseconds_per_sequence: Micros = 0.0
    """More of it for each sequence of a pass."""
    row_microseconds: Micros = 0.0
    """For each row that is sampled, or whose children a draft picks: no part of step costs."""

    @model_validator(mode="after")
    def _is_one_table(self) -> Self:
        table = self.rows is not None or self.milliseconds is not None
        if table == (self.profile is not None):
            refuse("", "allowed: either profile, or rows and milliseconds")
        if not table:
            return self
        rows, milliseconds = self.rows or [], self.milliseconds or []
        if not rows or len(rows) != len(milliseconds):
            refuse(
                "milliseconds",
                f"{len(milliseconds)} numbers are not allowed; allowed: one "
                f"for each of the {len(rows)} rows, at least one",
            )
        if rows != sorted(set(rows)):
            refuse("rows", f"{rows} is not allowed; allowed: rising numbers")
        return self


class Worker(SpecPart):
    """Replicas of one role."""

    costs: Costs
    """What passes cost."""
    replicas: Replicas = 1
    """Replicas; of drafts, those at the start."""
    gpus: Annotated[Count, Field(ge=0, le=1024)] = 1
    """GPUs of one replica."""
    max_running: Annotated[Count, Field(ge=1, le=MAX_RUNNING)] = 32
    """Sequences (target) or sessions (draft) that hold KV at once."""
    max_context: Annotated[Count, Field(ge=64, le=MAX_CONTEXT)] = 4096
    """Most tokens of one sequence."""
    kv_tokens: Annotated[Count, Field(ge=64, le=1 << 30)] = 262_144
    """Tokens whose KV one replica holds."""


class SimulatedTarget(Worker):
    """The targets."""

    max_waiting: Annotated[Count, Field(ge=0, le=65_536)] = 64
    """Requests that may wait at one; one more is refused."""
    max_queue_seconds: Annotated[Count, Field(ge=1, le=86_400)] = 60
    """Longest that a request waits for its first step."""
    row_capacity: Annotated[Count, Field(ge=2, le=65_536)] = 128
    """Rows of one pass: 128 in today's workers."""
    server_microseconds: Micros = 0.0
    """Microseconds that a request takes on its way through the server, there and back."""


class SimulatedPlacement(enum.StrEnum):
    """Where drafts run."""

    SEPARATE = "Separate"
    COLOCATED = "Colocated"


class LinkKind(enum.StrEnum):
    """What carries messages: shared memory at once, gRPC several together."""

    SHARED_MEMORY = "SharedMemory"
    GRPC = "GRPC"


class SimulatedLink(SpecPart):
    """The way between a target and a draft."""

    transport: LinkKind = LinkKind.GRPC
    """SharedMemory or GRPC."""
    microseconds: Micros = 200.0
    """One way, from one engine to the other."""


class SimulatedDraft(Worker):
    """The drafts."""

    placement: SimulatedPlacement = SimulatedPlacement.SEPARATE
    """Separate: workers of their own, shared by all targets. Colocated: one inside each target."""
    min_replicas: Annotated[Count, Field(ge=0, le=100_000)] | None = None
    """Drafts that stay while drafting is off; left out, `replicas`: none is given back."""
    leaf_rows: Annotated[Count, Field(ge=1, le=4096)] = 32
    """Leaves of all sessions that one pass expands: 32 in today's workers."""
    prefill_rows: Annotated[Count, Field(ge=4, le=4096)] = 64
    """Rows of prefill in one pass: 64 in today's workers."""
    start_seconds: Annotated[float, Field(ge=0, le=86_400)] = 60.0
    """Seconds from the wish for a replica to its links."""
    link: SimulatedLink = SimulatedLink()
    """The way to and from targets."""
    contention: Annotated[float, Field(ge=1, le=10)] = 1.0
    """Times that a pass takes while the other role runs too: 1 where they share nothing."""

    @property
    def separate(self) -> bool:
        """True if drafts are workers of their own."""
        return self.placement is SimulatedPlacement.SEPARATE

    @property
    def least_replicas(self) -> int:
        """Drafts that stay while drafting is off."""
        return self.replicas if self.min_replicas is None else self.min_replicas

    @model_validator(mode="after")
    def _can_shrink(self) -> Self:
        if self.least_replicas > self.replicas:
            refuse(
                "minReplicas",
                f"{self.min_replicas} is not allowed; allowed: at most replicas, {self.replicas}",
            )
        return self


class PairModel(SpecPart):
    """The pair's language: how well drafts know what their targets will say.

    docs/concepts/simulator.md has what follows from the numbers.
    """

    hit_rate: Annotated[float, Field(ge=0.01, le=0.999)] = 0.7
    """How often the draft's likeliest next token is the target's."""
    second: Annotated[float, Field(ge=0, le=0.95)] = 0.4
    """How often the draft's second token is the target's where its first one is not; of what is
    left then, the third; and so on."""
    spread: Annotated[float, Field(ge=0, le=6)] = 1.5
    """Deviation of the first child's probability between contexts, in logits."""
    passage_share: Share = 0.5
    """Share of the variance between contexts that a passage has in common: there are easy and hard
    ones."""
    passage_tokens: Annotated[Count, Field(ge=1, le=1 << 20)] = 32
    """Tokens of a passage. More than prompt and answer have: there are easy and hard requests."""
    vocabulary: Annotated[Count, Field(ge=8192, le=1 << 24)] = 32_768
    """Token ids."""

    @model_validator(mode="after")
    def _has_such_a_hit_rate(self) -> Self:
        try:
            Pair.of(**self.model_dump())
        except ValueError as error:
            refuse("hitRate", f"{error}; allowed: a higher one, or a smaller second or spread")
        return self


class Sample(SpecPart):
    """The part of a fleet that is simulated; what it shows stands for all."""

    targets: Replicas
    """Targets of one cell; drafts in proportion, so that each is a whole number."""
    cells: Annotated[Count, Field(ge=1, le=1024)] = 1
    """Cells, each with its own part of the traffic, in processes of their own."""


class Prices(SpecPart):
    """Prices, in any currency."""

    target_gpu_hour: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    """Price of an hour of one GPU of a target."""
    draft_gpu_hour: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    """Price of an hour of one GPU of a draft."""


class Simulation(SpecPart):
    """A service, its traffic, and what of it is simulated."""

    seed: Annotated[Count, Field(ge=0, le=(1 << 63) - 1)] = 0
    """Same seed, same result."""
    seconds: Annotated[float, Field(ge=0.001, le=604_800)] = 600.0
    """Virtual seconds."""
    pair: PairModel = PairModel()
    """How well drafts know what their targets will say."""
    target: SimulatedTarget
    """The targets."""
    draft: SimulatedDraft | None = None
    """The drafts; left out, there are none."""
    speculation: Speculation = Speculation()
    """As `spec.speculation` of a SpeculativeService."""
    traffic: Traffic
    """The requests."""
    sample: Sample | None = None
    """The part that is simulated; left out, all of it in one cell."""
    prices: Prices = Prices()
    """What hardware costs."""

    @property
    def drafts(self) -> int:
        """Draft workers at the start; those inside targets are none."""
        return self.draft.replicas if self.draft is not None and self.draft.separate else 0

    @property
    def least_drafts(self) -> int:
        """Draft workers that stay while drafting is off."""
        return self.draft.least_replicas if self.drafts and self.draft is not None else 0

    @property
    def cells(self) -> int:
        """Cells that are simulated."""
        return 1 if self.sample is None else self.sample.cells

    @property
    def cell_targets(self) -> int:
        """Targets of one cell."""
        return self.target.replicas if self.sample is None else self.sample.targets

    @property
    def cell_drafts(self) -> int:
        """Draft workers of one cell at the start."""
        return self.drafts * self.cell_targets // self.target.replicas

    @property
    def cell_least_drafts(self) -> int:
        """Draft workers of one cell that stay while drafting is off."""
        return self.least_drafts * self.cell_targets // self.target.replicas

    @model_validator(mode="after")
    def _can_be_sampled(self) -> Self:
        sample, targets = self.sample, self.target.replicas
        if sample is None:
            return self
        if sample.targets * sample.cells > targets:
            refuse(
                "sample",
                f"{sample.cells} cells of {sample.targets} targets are not allowed; allowed: "
                f"target.replicas, {targets}, in all",
            )
        for name, count in (("replicas", self.drafts), ("minReplicas", self.least_drafts)):
            if count * sample.targets % targets:
                refuse(
                    "sample.targets",
                    f"{sample.targets} is not allowed; a cell would have "
                    f"{count * sample.targets / targets:g} of the {count} drafts of draft.{name}; "
                    f"allowed: multiples of {targets // math.gcd(count, targets)}",
                )
        return self


def read_simulation(file: Path) -> Simulation:
    """Return what a file describes; raises `SpecError`, a line for each problem."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise SpecError(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SpecError(f"{file}: not UTF-8 text") from None
    try:
        return parse_simulation(text)
    except SpecError as error:
        raise SpecError("\n".join(f"{file}: {line}" for line in str(error).splitlines())) from None


def parse_simulation(text: str) -> Simulation:
    """Return what a YAML document describes; raises `SpecError`."""
    document = read_document(text)
    try:
        return Simulation.model_validate(document)
    except ValidationError as error:
        schema = Simulation.model_json_schema()
        raise SpecError("\n".join(_words(one, schema) for one in error.errors())) from None


def _words(problem: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """Describe a problem; one of several fields has the path of what holds them."""
    if problem["type"] != "rules":
        return describe(problem, schema)
    place = ".".join(str(key) for key in problem["loc"])
    return f"{place}.{problem['msg']}".removeprefix(".").replace(".:", ":")
