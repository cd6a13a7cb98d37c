"""How far drafts may run ahead, and what turns drafting off and on again.

The decisions are `policy`'s and the workers'; these are their bounds.
"""

import enum
from typing import Annotated

from pydantic import Field

from outrider.contract.settings import (
    MAX_DEPTH,
    MAX_GAIN_PERCENT,
    MAX_NODE_ROWS,
    MAX_NODES_AHEAD,
    MAX_WAITING,
    MAX_WIDTH,
    PolicySettings,
)
from outrider.operator.spec.part import Count, Seconds, SpecPart

_DEFAULTS = PolicySettings()
Windows = Annotated[int, Field(strict=True, ge=1, le=100)]


class SpeculationMode(enum.StrEnum):
    """Who decides whether and how far to draft."""

    ADAPTIVE = "Adaptive"
    STATIC = "Static"
    DISABLED = "Disabled"


class Disable(SpecPart):
    """What turns drafting off, any of these; over `control.downWindows`."""

    gain_below_percent: Count = Field(
        default=_DEFAULTS.off_below_percent, ge=0, le=MAX_GAIN_PERCENT
    )
    """Gain under which drafting goes off for a while; 0: it never does."""
    queue_above: Count = Field(default=5, ge=2, le=MAX_WAITING)
    """Requests that wait at one target, on average, above which drafting goes off."""
    kv_usage_above_percent: Count = Field(default=80, ge=2, le=100)
    """Share of the targets' KV in use above which drafting goes off; 100: it never does."""


class Enable(SpecPart):
    """What lets drafting come back, all of these; over `control.upWindows`."""

    gain_above_percent: Count = Field(default=_DEFAULTS.on_above_percent, ge=1, le=MAX_GAIN_PERCENT)
    """Gain that a probe must show for drafting to come back."""
    queue_below: Count = Field(default=2, ge=1, le=MAX_WAITING)
    """Requests that wait at one target, on average: fewer than these."""
    kv_usage_below_percent: Count = Field(default=70, ge=1, le=100)
    """Share of the targets' KV in use: less than this."""


class Control(SpecPart):
    """How often the operator looks, and how slowly it turns."""

    interval_seconds: Seconds = 15
    """Length of one window of metrics."""
    down_windows: Windows = 2
    """Windows in a row that must speak for less speculation."""
    up_windows: Windows = 4
    """Windows in a row that must speak for more."""
    cooldown_seconds: Seconds = 60
    """Shortest time between two changes."""
    probe_interval_seconds: Seconds = 300
    """Time after which drafting that is off is tried again."""
    min_passes: Count = Field(default=50, ge=1, le=1_000_000)
    """Verify passes that a window needs for its gain to count."""


class ShrinkPolicy(enum.StrEnum):
    """When the operator takes drafts away."""

    NEVER = "Never"
    WHEN_DISABLED = "WhenDisabled"
    PROPORTIONAL = "Proportional"


class DraftShrink(SpecPart):
    """When the operator takes drafts away, down to `draft.scaling.minReplicas`."""

    policy: ShrinkPolicy | None = None
    """WhenDisabled: once drafting is off. Proportional: also as fewer requests run. Left out,
    WhenDisabled where draft.scaling.mode is Managed, else Never."""
    after_seconds: Count = Field(default=120, ge=1, le=86_400)
    """How long there must be no use for a draft before it is drained and taken away."""


class Speculation(SpecPart):
    """How far the draft may run ahead."""

    mode: SpeculationMode = SpeculationMode.ADAPTIVE
    """Adaptive: drafting goes off and on as `disable` and `enable` say. Static: it stays on.
    Disabled: the target decodes plainly; `outrider run` starts no draft."""
    max_rows: Count = Field(default=_DEFAULTS.max_rows, ge=1, le=MAX_NODE_ROWS)
    """Ceiling of guessed rows of one request in one verify pass."""
    depth: Count = Field(default=_DEFAULTS.depth, ge=1, le=MAX_DEPTH)
    """Longest path drafted."""
    width: Count = Field(default=_DEFAULTS.width, ge=1, le=MAX_WIDTH)
    """Leaves expanded in one draft pass."""
    nodes_ahead: Count = Field(default=_DEFAULTS.nodes_ahead, ge=1, le=MAX_NODES_AHEAD)
    """Live guesses that a draft may hold for one request."""
    disable: Disable = Disable()
    """What turns drafting off, any of these."""
    enable: Enable = Enable()
    """What lets drafting come back, all of these."""
    control: Control = Control()
    """How often the operator looks, and how slowly it turns."""
    draft_shrink: DraftShrink = DraftShrink()
    """When the operator takes drafts away."""
