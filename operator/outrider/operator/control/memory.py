"""Memory of the control loop between two passes, and its JSON.

The operator keeps it in a ConfigMap, `outrider run` in its process. It changes only when something
happens, so that a service at rest is not written. Leaves deciding to `policy`.

Store it before the policy that belongs to it is pushed: a version must not be used twice.
"""

import dataclasses
import enum
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from outrider.contract.settings import MAX_NODE_ROWS, MAX_POLICY_VERSION
from outrider.operator.control.evidence import Evidence
from outrider.operator.control.reasons import LoopReason
from outrider.operator.control.settings import MAX_REPLICAS, ControlSettings

Moment = Annotated[float, Field(allow_inf_nan=False)]
"""Seconds since the epoch, by the caller's clock."""
Count = Annotated[int, Field(ge=0, le=(1 << 64) - 1)]
Version = Annotated[int, Field(ge=0, le=MAX_POLICY_VERSION)]
Rows = Annotated[int, Field(ge=1, le=MAX_NODE_ROWS)]
Replicas = Annotated[int, Field(ge=1, le=MAX_REPLICAS)]


MOMENTS = (
    "entered_at",
    "switched_at",
    "acknowledged_at",
    "counted_until",
    "lowered_at",
    "unused_since",
    "idle_since",
    "fewer_since",
)
"""Fields of the memory that are times."""


class Phase(enum.StrEnum):
    """Phase of drafting; `phases` has the transitions."""

    ON = "On"
    OFF = "Off"
    WAKING = "Waking"
    """Off, while drafts start and link."""
    PROBING = "Probing"
    """On, until it is known whether drafting pays again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyInForce:
    """Policy that targets follow when there is no memory."""

    version: int
    speculate: bool
    max_rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopMemory:
    """Memory of one service; times are seconds since the epoch."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)

    format: Literal[3] = 3
    """Version of this JSON format."""
    version: Version
    """Version of the policy; rises with every change of it."""
    speculate: bool
    """`speculate` of this version of the policy."""
    max_rows: Rows
    """`max_rows` of this version of the policy."""
    others: str = ""
    """`others` of this version of the policy: see `ControlInputs.others`."""
    phase: Phase
    entered_at: Moment
    """Start of the phase."""
    switched_at: Moment
    """Last change of `speculate`."""
    acknowledged_at: Moment | None = None
    """When all targets were first known to follow the last switch; None: not yet."""
    counted_until: Moment
    """End of the last window that was counted; each counts once."""
    evidence: Evidence = field(default_factory=Evidence)
    """Evidence of the gain since drafting went on."""
    lowered_at: Moment | None = None
    """When the ceiling of rows was lowered, or last probed without success; None: it is the
    settings' own."""
    unused_since: Moment | None = None
    """Since when no target has used drafts, though there was work; None: one has."""
    busy: Count = 0
    """Windows with work, while drafting is off for want of it."""
    idle_since: Moment | None = None
    """Since when the targets have had hardly any work; None: they have, or not for long."""
    for_probe: bool = False
    """True from the waking for a probe until drafting pays or wakes for another reason."""
    starts_drafts: bool = False
    """Waking: True if drafts were given back and have to start."""
    start_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Time that drafts last took to start and link; None: not known."""
    subject: str = ""
    """Digest of what gain depends on: see `ControlInputs.subject`; empty: not known yet."""
    failed: Count = 0
    """Probes in a row that showed too little, and returns of drafts for work that was soon over."""
    least_load: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Requests that ran at a target when drafting did not pay, or fewer when a probe began; None:
    it has not failed."""
    probe_due: bool = False
    """Off: True if a probe waits for nothing but work: something has changed, or it was asked."""
    cause: LoopReason = LoopReason.DRAFT_STARTING
    """Why drafting is off, while it is off."""
    because: str = ""
    """`cause` with its numbers, for people."""
    grown: Replicas | None = None
    """Draft replicas while drafting is on; None: not taken over yet."""
    shrunk: bool = False
    """True if replicas have been given back."""
    fewer_since: Moment | None = None
    """Proportional: since when fewer replicas would do."""

    def dumps(self) -> str:
        """Return the memory as JSON."""
        return _ADAPTER.dump_json(self).decode()

    def not_after(self, now: float) -> "LoopMemory":
        """Return the memory with no time in the future: the clock may have been set back."""
        moments = {name: getattr(self, name) for name in MOMENTS}
        late: dict[str, Any] = {n: now for n, at in moments.items() if at is not None and at > now}
        return dataclasses.replace(self, **late) if late else self


_ADAPTER = TypeAdapter(LoopMemory)


class UnreadableMemory(ValueError):
    """JSON that is no memory of this format; the message says where it is wrong."""


def loads(text: str) -> LoopMemory:
    """Read the memory from JSON; raise `UnreadableMemory`."""
    try:
        return _ADAPTER.validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the text"
        raise UnreadableMemory(f"memory: {where}: {first['msg']}") from None


def new_memory(settings: ControlSettings, now: float, in_force: PolicyInForce | None) -> LoopMemory:
    """Return a first memory with the policy that targets follow; None: there are no targets yet.

    Without a policy in force, drafting begins once a draft is linked. Where it is found off, a
    probe brings it back.
    """
    found = in_force or PolicyInForce(version=1, speculate=False, max_rows=settings.max_rows)
    return LoopMemory(
        version=found.version,
        speculate=found.speculate,
        max_rows=min(max(1, found.max_rows), MAX_NODE_ROWS),
        phase=_phase(in_force),
        entered_at=now,
        switched_at=now - (settings.judged_seconds if in_force is None else 0),
        counted_until=now,
        lowered_at=now if found.max_rows < settings.max_rows else None,
        cause=LoopReason.DRAFT_STARTING if in_force is None else LoopReason.LOW_GAIN,
        because="found like this",
    )


def _phase(in_force: PolicyInForce | None) -> Phase:
    if in_force is None:
        return Phase.WAKING
    return Phase.ON if in_force.speculate else Phase.OFF
