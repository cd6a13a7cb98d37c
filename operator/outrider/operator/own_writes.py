"""Own writes that the watches have not told of yet: what a pass wrote, the next one sees.

Without it a pass that follows at once would decide again what was just decided, and say it twice.
Bounded in time: a watch that never tells of a write is believed in the end. Writes nothing itself.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from outrider.operator.manifests.child import ChildKey
from outrider.operator.observed import Object

LAG_SECONDS = 10.0
"""Longest that a write is believed above the watches; they lag by milliseconds."""


@dataclass(frozen=True, slots=True)
class _Write:
    older: frozenset[str]
    """Versions that came before it; empty text: there was no object."""
    after: Object | None
    """None: deleted."""
    at: float


class Written:
    """The latest writes to one service and its children."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._writes: dict[ChildKey, _Write] = {}

    def learn(self, key: ChildKey, before: Object | None, after: Object | None) -> None:
        """Takes an object as it was when it was written, and what it became; None: none."""
        if _version(before) == _version(after):
            return
        known = self._writes.get(key)
        older = known.older if known is not None else frozenset[str]()
        self._writes[key] = _Write(older | {_version(before)}, after, self._clock())

    def over(self, cached: Mapping[ChildKey, Object]) -> dict[ChildKey, Object]:
        """What is cached, with the writes that it does not show yet."""
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
