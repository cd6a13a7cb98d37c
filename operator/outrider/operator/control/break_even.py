"""Break-even of drafting: the gain at which drafts are worth their hardware. Pure arithmetic.

Drafts that hold 2 GPUs beside a target's 6 make a service a third dearer, so that gain has to be
133 %. Only GPUs that are given back while drafting is off count: others cost the same either way.
All count as if they were of one kind, for the cluster says of none what it costs.
Leaves judging a window to `verdict`.
"""

from dataclasses import dataclass

from outrider.operator.control.settings import ControlSettings

LEAST_PERCENT = 105
"""Break-even of drafts whose hardware costs nothing else; below, gain is hardly to be measured."""
MARGIN_PERCENT = 10
"""Gain above break-even that brings drafting back: a dead band, so that noise switches nothing."""


@dataclass(frozen=True, slots=True)
class BreakEven:
    """Gains, in percent, by which drafting is judged."""

    off_below: int
    """Gain under which drafting does not pay."""
    on_above: int
    """Gain that brings drafting back."""
    share: float = 0.0
    """Hardware of the drafts that are given back, by the targets'."""


def break_even(settings: ControlSettings, drafts: int, targets: int) -> BreakEven:
    """Return the thresholds of `drafts` replicas beside `targets`; those of the settings, where
    there are some, win over what follows from the hardware."""
    share = _share(settings, drafts, targets)
    off, on = settings.gain_below_percent, settings.gain_above_percent
    if off is None:
        off = max(LEAST_PERCENT, round(100 * (1 + share)))
        off = off if on is None else min(off, on - 1)
    return BreakEven(off, off + MARGIN_PERCENT if on is None else on, share)


def _share(settings: ControlSettings, drafts: int, targets: int) -> float:
    draft = settings.draft
    if not draft.returnable or not draft.target_gpus or not targets:
        return 0.0
    returned = max(0, drafts - draft.min_replicas)
    return returned * draft.draft_gpus / (targets * draft.target_gpus)
