"""The state of a worker: the models it serves, its links, its counters.

Fields are those of the messages of the same name in inference.proto and control.proto.
"""

import enum
from dataclasses import dataclass, field

from outrider.contract.counters import Counters
from outrider.contract.settings import PolicySettings, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One model that a target serves."""

    name: str
    context_length: int
    """Most tokens of prompt and answer together."""
    vocabulary_size: int
    revision: str
    """Hash of weights and code version."""
    has_chat_template: bool


class LinkState(enum.StrEnum):
    """Life of one link between a target and a draft."""

    UNKNOWN = "unknown"
    CONNECTING = "connecting"
    """No stream yet, or trying again after a loss."""
    UP = "up"
    REFUSED = "refused"
    """The pair cannot work; the link's `detail` says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One link, as the target sees it."""

    address: str
    state: LinkState
    detail: str
    """For people: why it does not work, or why nothing shorter carries it."""
    revision: str
    incarnation: int
    transport: str = ""
    """What carries its messages, once it is up: `grpc`, `shared_memory` or `distributed`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineView:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFacts:
    """One stage of a pipelined target: what it is, and what it has computed."""

    index: int
    """From 0."""
    first_layer: int
    layers: int
    dtype: str
    kv_blocks: int
    segments: int
    """Computed, those without rows not counted."""
    rows: int
    """Computed."""
    busy_seconds: float
    """Seconds of computing them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageState(StageFacts):
    """One stage of a pipelined target, as it sees itself."""

    stages: int
    in_group: bool
    """True while its leader and all stages are there."""
    groups: int
    """Groups that it took part in."""
    rows_waiting: int
    received_bytes: int
    sent_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StageView(StageFacts):
    """One stage as its leader sees it, by the segments that came back."""

    queue_seconds: float
    """For which segments waited in the stage for their turn, added up."""
    row_seconds: float
    """For which rows were in the stage, added up over all rows: over a time, the mean number of
    rows in it."""
    link_seconds: float
    """For which segments were on their way to the stage, added up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageGroupView:
    """The stages of a pipelined target, as its leader sees them."""

    up: bool
    """True while all of them run as one."""
    detail: str
    """For people: which stage is missing and why, if one is."""
    losses: int
    """Groups that have ended since the engine started."""
    link: str = ""
    """What carries records: `grpc` or `distributed`."""
    segments_in_flight: int = 0
    """With live rows."""
    rows_in_flight: int = 0
    """Live rows in them."""
    segments: int = 0
    """That came back."""
    segment_seconds: float = 0.0
    """From their sending to their coming back, added up."""
    prompt_rows: int = 0
    """Sent."""
    committed_rows: int = 0
    """Roots sent, and nodes that were committed."""
    pruned_rows: int = 0
    """Nodes that died."""
    each: tuple[StageView, ...] = ()
    """Its stages, in order; those of the last group, where none is up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineSpan:
    """One pass of an engine, or what one stage of a pipelined target did to one segment."""

    lane: str
    """What computed: `target`, `draft`, `stage 0` and so on."""
    number: int
    """Of the segment; passes of an engine are counted from 0."""
    came: float
    """Unix time in seconds at which it came to the stage; of a pass, when it began."""
    began: float
    """Unix time in seconds at which computing began."""
    ended: float
    rows: int
    """Computed."""
    prompt_rows: int
    """Of those, rows of prompts, or of tokens that a draft missed."""
    committed_rows: int
    """Of those, roots and nodes that were committed."""
    pruned_rows: int
    """Of those, nodes that were not: they died, or a pass did not accept them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryView:
    """Memory that a target shares with the draft in its process."""

    draft: str
    """Where the draft's weights are: `on_device`, `offloading`, `on_host` or `reloading`."""
    target_kv_bytes: int
    """At present, as the others."""
    draft_kv_bytes: int
    draft_weight_bytes: int
    """On the device."""
    lendable_bytes: int
    """By which the target's KV grows while the draft's memory is lent to it; 0: it never is."""
    expansions: int
    """Of the target's KV."""
    contractions: int
    moved_blocks: int
    """Blocks of KV that were moved for that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What a worker is and does now."""

    role: Role
    model: str
    revision: str
    incarnation: int
    ready: bool
    draining: bool
    policy: PolicySettings
    """The policy in force; without `sources` where the worker is too old to know them."""
    links: tuple[Link, ...]
    """Targets only."""
    running: int
    waiting: int
    counters: Counters
    dtype: str
    """Numeric path in use: `fp32`, `bf16`, `int8` or `int4`; empty until the model is loaded."""
    threads: int
    step_seconds: dict[int, float]
    """Measured seconds of one pass, by rows."""
    engine: EngineView | None = None
    """How it computes; None until the model is loaded."""
    drafting: str = ""
    """Targets: `on`, `off`, `probe` or `check`; `disabled` by the policy."""
    last_rows: int = 0
    """Targets: rows of the last pass."""
    last_node_rows: int = 0
    """Targets: node rows among them."""
    planner_choice: str = ""
    """Targets: why the last step that decoded ran the node rows that it did."""
    draft_lag: int = 0
    """Targets: most tokens by which the draft of a running request is behind."""
    stage: StageState | None = None
    """Stages of a pipelined target: None until its layers are loaded."""
    stages: StageGroupView | None = None
    """Pipelined targets only."""
    memory: MemoryView | None = None
    """Targets with a draft in their process on a CPU only."""
