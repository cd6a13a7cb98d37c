"""The state of a worker, as it reports it and a client reads it: its links, counters and stages.

Fields are those of the messages of control.proto.
"""

import enum
from dataclasses import dataclass, field
from typing import NamedTuple

from outrider.contract.counters import Counters, new_counters
from outrider.contract.settings import PolicySettings, Role


class LinkState(enum.StrEnum):
    """Life of one link between a target and a draft."""

    UNKNOWN = "unknown"
    CONNECTING = "connecting"
    """No stream yet, or trying again after a loss."""
    UP = "up"
    REFUSED = "refused"
    """The pair cannot work, or the draft broke the protocol; the link's `detail` says why."""


INSIDE = "colocated"
"""Address of a draft in its target's process, whose link is reported where it is refused."""


@dataclass(frozen=True, slots=True)
class Link:
    """One link, as the target sees it."""

    address: str
    state: LinkState = LinkState.CONNECTING
    detail: str = ""
    """For people: why it does not work, or why nothing shorter carries it."""
    revision: str = ""
    """Revision of the draft, once known."""
    incarnation: int = 0
    """Incarnation of the draft, once known."""
    transport: str = ""
    """What carries its messages, once it is up: `grpc`, `shared_memory` or `distributed`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageState:
    """One stage of a pipelined target."""

    index: int
    """Number of the stage, from 0."""
    stages: int
    first_layer: int
    layers: int
    dtype: str
    kv_blocks: int
    in_group: bool
    """True while its leader and all stages are there."""
    groups: int
    """Groups that the stage took part in."""
    segments: int
    rows: int
    """Computed."""
    rows_waiting: int
    busy_seconds: float
    received_bytes: int
    sent_bytes: int


@dataclass(kw_only=True)
class StageLayers:
    """What one stage of a pipelined target is."""

    index: int
    """Number of the stage, from 0."""
    first_layer: int
    layers: int
    dtype: str
    kv_blocks: int


@dataclass(slots=True, kw_only=True)
class StageTotals:
    """What one stage did to the segments that came back."""

    segments: int = 0
    """Computed, those without rows not counted."""
    rows: int = 0
    """Computed."""
    busy_seconds: float = 0.0
    """Seconds spent computing segments."""
    queue_seconds: float = 0.0
    """For which segments waited in the stage for their turn, added up."""
    row_seconds: float = 0.0
    """For which rows were in the stage, added up over all rows: over a time, the mean number of
    rows in it."""
    link_seconds: float = 0.0
    """For which segments were on their way to the stage, added up."""


@dataclass(slots=True, kw_only=True)
class StageView(StageLayers, StageTotals):
    """One stage as its leader sees it: what it is, and what it did to segments that came back."""


@dataclass(slots=True, kw_only=True)
class SegmentTotals:
    """What became of a pipelined target's segments."""

    segments_in_flight: int = 0
    """With live rows."""
    rows_in_flight: int = 0
    """Live rows in them."""
    segments: int = 0
    """Segments that came back."""
    segment_seconds: float = 0.0
    """Seconds from each segment's sending to its coming back, added up."""
    prompt_rows: int = 0
    """Sent."""
    committed_rows: int = 0
    """Roots sent, and nodes that were committed."""
    pruned_rows: int = 0
    """Nodes that died."""


@dataclass(slots=True, kw_only=True)
class StageGroup(SegmentTotals):
    """The stages of a pipelined target, as its leader sees them."""

    up: bool
    """True while all of them run as one."""
    detail: str
    """For people: which stage is missing and why, if one is."""
    losses: int
    """Groups that have ended since the engine started."""
    link: str = ""
    """What carries records: `grpc` or `distributed`."""
    each: tuple[StageView, ...] = ()
    """Its stages, in order; those of the last group, where none is up."""


class TimelineSpan(NamedTuple):
    """One pass of an engine, or what one stage of a pipelined target did to one segment.

    Times are Unix times in seconds; within a worker they are those of `time.monotonic()`.
    """

    lane: str
    """What computed: `target`, `draft`, `stage 0` and so on."""
    number: int
    """Number of the segment; passes of an engine are counted from 0."""
    came: float
    """Time at which it came to the stage; of a pass, when it began."""
    began: float
    """Time at which computing began."""
    ended: float
    rows: int
    """Computed."""
    prompt_rows: int = 0
    """Computed rows of prompts, or of tokens that a draft missed."""
    committed_rows: int = 0
    """Computed roots and nodes that were committed."""
    pruned_rows: int = 0
    """Computed nodes that were not committed: they died, or a pass did not accept them."""


class DraftMemoryState(enum.StrEnum):
    """Where the weights of a draft are that shares a device with its target.

    OFFLOADING and RELOADING end when the copy has ended, not when it was ordered.
    """

    ON_DEVICE = "on_device"
    """The draft has its weights and KV."""
    OFFLOADING = "offloading"
    """Its weights are being copied to the host; its KV is given up."""
    ON_HOST = "on_host"
    """Its bytes are blocks of the target's KV."""
    RELOADING = "reloading"
    """The target has given the blocks back, and the weights are being copied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Memory that a target shares with the draft in its process."""

    draft: str
    """Where the draft's weights are: a `DraftMemoryState`."""
    target_kv_bytes: int
    """At present, as the others."""
    draft_kv_bytes: int
    draft_weight_bytes: int
    """On the device."""
    lendable_bytes: int
    """Bytes by which the target's KV grows while the draft's memory is lent to it; 0: never."""
    expansions: int
    """Expansions of the target's KV."""
    contractions: int
    moved_blocks: int
    """Blocks of KV that were moved for that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineState:
    """How an engine computes: what its settings came to."""

    max_context: int
    """Most tokens of one sequence."""
    dtype: str
    threads: int
    max_running: int
    """Sequences (target) or sessions (draft) that are worked on at once."""
    kv_bytes: int
    """Memory for keys and values."""
    prefix_cache: bool
    path_seconds: dict[str, float] = field(default_factory=dict)
    """Seconds of the role's mean pass, by each numeric path that `dtype: auto` chose from."""


@dataclass(frozen=True, slots=True)
class EngineWork:
    """What an engine has done, and does now."""

    counters: Counters = field(default_factory=new_counters)
    running: int = 0
    waiting: int = 0
    drafting: str = ""
    """Targets: `on`, `off`, `probe` or `check`; `disabled` by the policy."""
    planner_choice: str = ""
    """Targets: why the last step that decoded ran the node rows that it did."""
    draft_lag: int = 0
    """Targets: most tokens by which the draft of a running request is behind."""
    last_rows: int = 0
    """Targets: rows of the last pass."""
    last_node_rows: int = 0
    """Targets: node rows among them."""
    memory: Memory | None = None
    """Targets with a draft in their process on a CPU only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State(EngineWork):
    """What a worker is and does now."""

    role: Role
    model: str
    revision: str = ""
    incarnation: int = 0
    ready: bool = False
    draining: bool = False
    policy: PolicySettings = field(default_factory=PolicySettings)
    """The policy in force; without `sources` where the worker is too old to know them."""
    links: tuple[Link, ...] = ()
    """Targets only: one for each draft of the policy."""
    dtype: str = ""
    """Numeric path in use: `fp32`, `bf16`, `int8` or `int4`; empty until the model is loaded."""
    threads: int = 0
    step_seconds: dict[int, float] = field(default_factory=dict)
    """Measured seconds of one pass, by rows."""
    engine: EngineState | None = None
    """How it computes; None until the model is loaded."""
    stage: StageState | None = None
    """Stages of a pipelined target: None until its layers are loaded."""
    stages: StageGroup | None = None
    """Pipelined targets only."""
