"""Break-even of drafting: the gain at which drafts are worth their hardware. Pure arithmetic.

Drafts that hold 2 GPUs beside a target's 6 make a service a third dearer, so that gain has to be
133 %. Only GPUs that are given back while drafting is off count: others cost the same either way.
All count as if they were of one kind, unless prices of both are known.
Leaves judging to `evidence`.
"""

from dataclasses import dataclass

from outrider.operator.control.settings import ControlSettings

HOURS = 24
"""Hours of a day; prices are those of an hour."""
LEAST_PERCENT = 103
"""Break-even of drafts whose hardware costs nothing else: being off at 103 loses less than 3 %."""


@dataclass(frozen=True, slots=True)
class BreakEven:
    """Gains, in percent, by which drafting is judged."""

    off_below: int
    """Gain under which drafting does not pay."""
    on_above: int
    """Gain that a probe has to show."""
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
    return BreakEven(off, off if on is None else on, share)


def _share(settings: ControlSettings, drafts: int, targets: int) -> float:
    draft = settings.draft
    own, other = draft.draft_gpus, draft.target_gpus
    if draft.draft_price and draft.target_price:
        own, other = draft.draft_price, draft.target_price
    if not other or not targets:
        return 0.0
    return draft.given_back(drafts) * own / (targets * other)


def a_day(
    settings: ControlSettings, drafts: int, targets: int, gain: float
) -> tuple[float, float] | None:
    """Return what drafts that would be given back cost a day, and what a gain brings: the price of
    the targets that would do as much without drafts, beside `targets`. None: prices are not
    known."""
    draft = settings.draft
    if not draft.draft_price or not draft.target_price or not draft.returns(drafts):
        return None
    cost = draft.given_back(drafts) * draft.draft_price * HOURS
    return cost, (gain - 1) * targets * draft.target_price * HOURS
