"""Segments on their way through the stages, and the live rows of each."""

from collections import Counter


class SegmentsInFlight:
    """Live rows by segment and sequence; a segment whose rows are all dead is only a header."""

    def __init__(self) -> None:
        self._live: dict[int, Counter[int]] = {}

    @property
    def busy(self) -> int:
        """Segments that hold live rows."""
        return sum(any(counts.values()) for counts in self._live.values())

    @property
    def all_back(self) -> bool:
        """True if none is under way, not even a header."""
        return not self._live

    @property
    def rows(self) -> int:
        """Live rows of all of them."""
        return sum(sum(counts.values()) for counts in self._live.values())

    def send(self, segment: int, rows: dict[int, int]) -> None:
        """Count a segment; `rows` by sequence."""
        self._live[segment] = Counter(rows)

    def receive(self, segment: int) -> None:
        """Forget a segment that is back."""
        self._live.pop(segment, None)

    def lose(self, segment: int, sequence: int) -> None:
        """Count the death of a row; it may be back already."""
        if segment in self._live:
            self._live[segment][sequence] -= 1

    def end(self, sequence: int) -> None:
        """Count the death of all rows of a sequence."""
        for counts in self._live.values():
            del counts[sequence]
