"""The counters of a fake worker: they rise with time, at the rates that its test wants.

Knows no clock and no file; leaves both to `fake_worker`.
"""

from collections.abc import Mapping

from outrider.contract.counters import Counters

DRAFTED = frozenset(
    {
        "draft_rows",
        "accepted_rows",
        "drafted_passes",
        "first_guesses",
        "first_hits",
        "draft_wait_seconds",
    }
)
"""What stands still in a target that does not draft."""


class Tally:
    """Counters since a worker's start."""

    def __init__(self, now: float) -> None:
        self._values: dict[str, float] = {}
        self._at = now

    def set(self, values: Mapping[str, float]) -> None:
        """Gives some counters other values."""
        self._values |= values

    def rise(self, rates: Mapping[str, float], now: float, drafts: bool) -> None:
        """Adds what has come since the last call."""
        seconds, self._at = now - self._at, now
        for name, rate in _true_rates(rates, drafts).items():
            self._values[name] = self._values.get(name, 0.0) + rate * seconds

    def counters(self) -> Counters:
        """As a worker reports them."""
        counters = Counters()
        for name, value in self._values.items():
            whole = isinstance(getattr(counters, name), int)
            setattr(counters, name, int(value) if whole else value)
        return counters


def _true_rates(rates: Mapping[str, float], drafts: bool) -> Mapping[str, float]:
    if drafts:
        return rates
    plain = {name: rate for name, rate in rates.items() if name not in DRAFTED}
    if "plain_seconds" in rates:
        plain["spent_seconds"] = rates["plain_seconds"]
    return plain
