"""Costs of taking up drafting again: seconds lost while drafts catch up, as measured on this pair.

Nightjar (arXiv 2512.22420) measures such a table once, offline, as the difference of two prefills.
Here each return adds to it: what its steps took, less plain decoding of the same tokens.
"""

from dataclasses import dataclass, field

from outrider.worker.speculation.guard import Balance

PRIOR_TOKEN_SECONDS = 50e-6
"""A draft's prefill of one token, before any return was measured: the demo's draft on one Zen 5
core takes about 1 ms for 8 rows and 3 ms for 64."""
MEMORY = 0.7
"""Weight of the past in a mean."""


@dataclass(slots=True)
class SwitchCosts:
    """Mean seconds lost by a return, by the largest lag and the number of sequences.

    Both are taken by powers of two. What was not measured is estimated by tokens.
    """

    token_seconds: float = PRIOR_TOKEN_SECONDS
    """Mean over all returns, of a token of one sequence."""
    _table: dict[tuple[int, int], float] = field(default_factory=dict)

    def seconds(self, lag: int, sequences: int) -> float:
        """Return what a return costs: `lag` tokens of each of so many sequences at most."""
        known = self._table.get(_bucket(lag, sequences))
        return lag * sequences * self.token_seconds if known is None else known

    def learn(self, lag: int, sequences: int, seconds: float) -> None:
        """Learn what one return lost; a gain counts as 0."""
        lost, at = max(0.0, seconds), _bucket(lag, sequences)
        each = lost / max(1, lag * sequences)
        self.token_seconds += (1 - MEMORY) * (each - self.token_seconds)
        known = self._table.get(at)
        self._table[at] = lost if known is None else known + (1 - MEMORY) * (lost - known)


@dataclass(slots=True)
class Return:
    """One return to drafting, from the first step until all drafts are level."""

    lag: int
    """Most tokens that a draft lacks."""
    sequences: int
    balance: Balance = field(default_factory=Balance)


def _bucket(lag: int, sequences: int) -> tuple[int, int]:
    return lag.bit_length(), (sequences - 1).bit_length()
