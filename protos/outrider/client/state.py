"""What a worker says of itself: the models it serves, its links, its counters.

Fields are those of the messages of the same name in inference.proto and control.proto.
"""

import enum
from dataclasses import dataclass

from outrider.contract.metrics import accepted_by_depth
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
    """For people: why it does not work."""
    revision: str
    incarnation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What has happened since the worker started."""

    requests_finished: int = 0
    requests_cancelled: int = 0
    tokens: int = 0
    """Committed tokens."""
    passes: int = 0
    """Target: verify passes. Draft: growth passes."""
    draft_rows: int = 0
    """Target: node rows verified. Draft: rows run, expansions and suffix tokens together."""
    accepted_rows: int = 0
    plain_seconds: float = 0.0
    """Seconds that plain decoding would have taken."""
    spent_seconds: float = 0.0
    draft_wait_seconds: float = 0.0
    """Seconds that the target waited for growth."""
    growth_dropped: int = 0
    """Nodes that arrived dead."""
    kv_slots_used: int = 0
    drafting_seconds: float = 0.0
    """Targets that draft in their own process: seconds spent in draft passes."""
    preemptions: int = 0
    """Requests that gave their KV back for others and computed it again."""
    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    """Tokens of prompts whose KV was kept from earlier requests."""
    kv_slots: int = 0
    """Slots of KV in all."""
    wait_gain_predicted: float = 0.0
    """Tokens that waits were expected to bring, less what their time could have brought."""
    wait_gain_realised: float = 0.0
    """Tokens that they did bring, less the same; below 0 where waiting lost."""
    requests_at_length: int = 0
    """Of the finished requests, those that ended at their most tokens."""
    requests_failed: int = 0
    """Of the finished requests, those that the engine could not go on with."""
    requests_expired: int = 0
    """Of the cancelled requests, those that waited for their first step for too long."""
    generation_tokens: int = 0
    """Tokens of answers, the first one of each included."""
    drafted_passes: int = 0
    """Verify passes over one node row or more."""
    first_guesses: int = 0
    """Verify passes whose rows held the draft's likeliest next token."""
    first_hits: int = 0
    """Of those, passes in which it was right."""
    passes_by_accepted: tuple[int, ...] = ()
    """Verify passes by how many node rows each accepted, from 0."""
    steps: int = 0
    """Targets: passes of the engine, each over rows of several sequences."""
    step_rows: int = 0
    """Rows of all of them: roots, nodes and tokens of prompts."""

    @property
    def accepted_by_depth(self) -> tuple[int, ...]:
        """Accepted node rows by depth, from 1."""
        return accepted_by_depth(self.passes_by_accepted)


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
    """The policy in force."""
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
