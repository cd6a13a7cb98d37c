"""Own writes that the watches do not show yet, laid over their caches for the next pass.

Without them a pass that follows at once would repeat the last decision and its event. Bounded in
time: in the end the watch is right. Writes nothing itself.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from outrider.operator.cluster.kinds import ChildKey

Object = Mapping[str, Any]
LAG_SECONDS = 10.0
"""Longest time for which a write counts above the watches; they lag by milliseconds."""


@dataclass(frozen=True, slots=True)
class _Write:
    older: frozenset[str]
    """Versions that came before it; empty text: there was no object."""
    after: Object | None
    """None: deleted."""
    at: float


class OwnWrites:
    """The latest writes to one service and its children."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._writes: dict[ChildKey, _Write] = {}

    def learn(self, key: ChildKey, before: Object | None, after: Object | None) -> None:
        """Record a write: the object before and after it; None: there was none."""
        if _version(before) == _version(after):
            return
        known = self._writes.get(key)
        older = known.older if known is not None else frozenset[str]()
        self._writes[key] = _Write(older | {_version(before)}, after, self._clock())

    def holds(self, kind: str) -> bool:
        """True if a write to an object of a kind may not be shown yet."""
        return any(key[0] == kind for key in self._writes)

    def overlay(self, cached: Mapping[ChildKey, Object]) -> dict[ChildKey, Object]:
        """Return the cached objects with the writes that they do not show yet."""
        newest = dict(cached)
        for key, write in list(self._writes.items()):
            late = self._clock() - write.at > LAG_SECONDS
            if late or _version(cached.get(key)) not in write.older:
                del self._writes[key]
            elif write.after is None:
                newest.pop(key, None)
            else:
                newest[key] = write.after
        return newest


def _version(live: Object | None) -> str:
    return "" if live is None else str(live["metadata"]["resourceVersion"])
