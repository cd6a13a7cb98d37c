"""Arrangement that was taken for a service on this machine, and what it was taken from."""

from dataclasses import dataclass

from outrider.cli.placement.arrangement import Arrangement
from outrider.cli.placement.estimate import Expected, StepCosts
from outrider.cli.placement.facts import Facts


@dataclass(frozen=True, slots=True)
class Choice:
    """The arrangement taken, and what it was taken from."""

    best: Expected
    plain: Expected
    """The best without a draft."""
    found: tuple[Expected, ...]
    """The best of each placement, and plain decoding, the fastest first."""
    costs: StepCosts
    facts: Facts

    def over_plain(self, one: Expected) -> float:
        """Return what an arrangement gives, over plain decoding at its best."""
        return one.tokens_per_second / self.plain.tokens_per_second

    def counterpart(self, arrangement: Arrangement) -> Arrangement | None:
        """Return what an arrangement is compared with: plain decoding at its best, or, if it is
        that itself, the best with a draft; None where there is none."""
        if arrangement.placement is not None:
            return self.plain.arrangement
        drafted = (e.arrangement for e in self.found if e.arrangement.placement is not None)
        return next(drafted, None)

    def others(self, *shown: Arrangement) -> list[tuple[Expected, float]]:
        """Return the placements that are not among `shown`, with what they give over plain."""
        placements = {one.placement for one in shown}
        return [
            (one, self.over_plain(one))
            for one in self.found
            if one.arrangement.placement not in placements
        ]

    def __str__(self) -> str:
        """One line that says why."""
        best, plain = self.best, self.plain.arrangement
        row = 1e3 * self.costs.target[best.arrangement.threads].seconds(1)
        drafted = [one for one in self.found if one.arrangement.placement is not None]
        rates = ", ".join(f"{one.arrangement.name} {self.over_plain(one):.2f}" for one in drafted)
        known = "are right" if self.facts.first_guesses else "are assumed to be right"
        return (
            f"placement Auto takes {best.arrangement.name}: {best.tokens_per_second:.0f} tokens/s "
            f"expected; over {plain.name}: {rates or 'nothing else is possible'}; a row takes "
            f"{row:.2f} ms, and {self.facts.acceptance:.0%} of the draft's first guesses {known}"
        )
