"""The state of a worker: the models it serves, its links, its counters.

Fields are those of the messages of the same name in inference.proto and control.proto; parts that
workers have, too, are in `outrider.contract.state`.
"""

from dataclasses import dataclass, field

from outrider.contract.counters import Counters
from outrider.contract.settings import PolicySettings, Role
from outrider.contract.state import Link, Memory, StageGroup, StageState


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
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
    engine: Engine | None = None
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
    stages: StageGroup | None = None
    """Pipelined targets only."""
    memory: Memory | None = None
    """Targets with a draft in their process on a CPU only."""
