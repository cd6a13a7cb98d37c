"""Bounds of speculation: how far drafts run ahead, and thresholds that turn drafting off and on.

Leaves the decisions to `control.policy` and the workers.
"""

import enum
from typing import Annotated

from pydantic import Field

from outrider.contract.settings import (
    MAX_DEPTH,
    MAX_GAIN_PERCENT,
    MAX_NODE_ROWS,
    MAX_NODES_AHEAD,
    MAX_WIDTH,
    PolicySettings,
)
from outrider.operator.control.settings import ShrinkPolicy, SpeculationMode
from outrider.operator.spec.part import Count, Rule, Seconds, SpecPart

_DEFAULTS = PolicySettings()


class Proposer(enum.StrEnum):
    """What may propose draft tokens."""

    DRAFT = "Draft"
    SUFFIX = "Suffix"
    ANSWERS = "Answers"


class DraftLink(enum.StrEnum):
    """What carries the messages between a target and a draft."""

    AUTO = "Auto"
    SHARED_MEMORY = "SharedMemory"
    DISTRIBUTED = "Distributed"
    GRPC = "GRPC"


class Disable(SpecPart):
    """Threshold that turns drafting off."""

    gain_below_percent: Annotated[Count, Field(ge=0, le=MAX_GAIN_PERCENT)] | None = None
    """Gain over all targets, since drafting went on, below which the operator lowers `maxRows`, and
    then gives drafts back; 0: never. It has to be below beyond doubt. Left out, what pays for the
    drafts' GPUs (2 beside the targets' 6: 133), at least 103. A target that gains less decodes
    plainly for a while by itself; left out, below 105."""


class Enable(SpecPart):
    """Threshold that brings drafting back."""

    gain_above_percent: Annotated[Count, Field(ge=1, le=MAX_GAIN_PERCENT)] | None = None
    """Gain that a probe must surely show for drafting to come back. Left out, the one under which
    it goes off, and for a target's own probes 10 more."""


class ControlLoop(SpecPart):
    """Intervals of the operator's control loop."""

    interval_seconds: Seconds = 15
    """Length of one window of metrics. Gain is judged by eight at a time, and drafting goes on and
    off at most once in eight. Metrics older than four windows, and than 10 s, leave everything as
    it is."""
    probe_interval_seconds: Seconds = 2400
    """Least time after which drafting that is off is tried again. Each try that fails makes it 1.6
    times as long, until tries take 1.15 % of the time. The annotation `outrider.dev/probe-at` with
    another value asks for a try now."""


class DraftShrink(SpecPart):
    """When the operator removes draft replicas, down to `draft.scaling.minReplicas`."""

    policy: ShrinkPolicy | None = None
    """WhenDisabled: once drafting is off. Proportional: also as fewer requests run. Left out,
    WhenDisabled where draft.scaling.mode is Managed, else Never."""
    after_seconds: Count = Field(default=120, ge=1, le=86_400)
    """Seconds without need for a draft before it is drained and removed."""
    idle_seconds: Count = Field(default=900, ge=0, le=86_400)
    """Seconds without requests (fewer than 50 passes an interval), or in which every target decoded
    plainly by itself, before drafting goes off and drafts are removed; they start again once there
    is work, or half of the load. 0: never. Nothing where policy is Never."""


class Speculation(SpecPart):
    """Limits of speculation, and the control loop that turns it off and on."""

    rules = (
        Rule(
            "!has(self.enable.gainAbovePercent) || !has(self.disable.gainBelowPercent) ||"
            " self.enable.gainAbovePercent > self.disable.gainBelowPercent",
            "must be more than disable.gainBelowPercent",
            ".enable.gainAbovePercent",
        ),
        Rule(
            "size(self.sources) > 0 && self.sources.all(s, self.sources.exists_one(o, o == s))",
            "must name one source or more, each once; for plain decoding set mode to Disabled",
            ".sources",
        ),
    )

    mode: SpeculationMode = SpeculationMode.ADAPTIVE
    """Adaptive: drafting goes off and on as `disable` and `enable` say; the other `sources` stay.
    Static: it stays on. Disabled: the target decodes plainly; `outrider run` starts no draft."""
    max_rows: Count = Field(default=_DEFAULTS.max_rows, ge=1, le=MAX_NODE_ROWS)
    """Ceiling of node rows (draft tokens to verify) of one request in one verify pass; a quarter of
    it for a while where drafting does not pay for drafts that could be given back."""
    depth: Count = Field(default=_DEFAULTS.depth, ge=1, le=MAX_DEPTH)
    """Longest path drafted."""
    width: Count = Field(default=_DEFAULTS.width, ge=1, le=MAX_WIDTH)
    """Leaves expanded in one draft pass."""
    nodes_ahead: Count = Field(default=_DEFAULTS.nodes_ahead, ge=1, le=MAX_NODES_AHEAD)
    """Live nodes (draft tokens) that a draft may hold for one request."""
    disable: Disable = Disable()
    """Threshold that turns drafting off."""
    enable: Enable = Enable()
    """Threshold that brings drafting back."""
    control: ControlLoop = ControlLoop()
    """Intervals of the operator's control loop."""
    draft_shrink: DraftShrink = DraftShrink()
    """When the operator removes draft replicas."""
    link: DraftLink = DraftLink.AUTO
    """SharedMemory: memory that target and draft share, as containers of one pod can; where that is
    not possible a worker or a link is refused with the reason. Distributed: torch.distributed with
    gloo, which takes the network that GLOO_SOCKET_IFNAME names; the pods of both roles may then
    reach each other on any port. GRPC: a stream. Auto: shared memory where both sides have it, as
    under `outrider run`, else the stream."""

    sources: Annotated[tuple[Proposer, ...], Field(max_length=len(Proposer))] = tuple(Proposer)
    """What may propose draft tokens. Draft: the draft, if there is one. Suffix: what followed in
    prompt or answer where the end of the text has occurred before; it needs no draft, and costs no
    pass of any model. Answers: what followed in earlier answers to the same API key, also those
    broken off; without keys only on loopback, and not in a target of several stages."""
