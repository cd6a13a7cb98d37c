"""Objects of one service that the API server refused or had no answer for, and when each is tried
again.

Kept between passes: whatever else a service needs goes on meanwhile. Leaves trying to `apply`.
"""

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass

from outrider.operator.cluster.client import ClusterError
from outrider.operator.cluster.kinds import ChildKey
from outrider.operator.work_queue import backoff


@dataclass(frozen=True, slots=True)
class ApplyFailure:
    """One object, since its last success."""

    error: ClusterError
    times: int = 0
    """Tries in a row that failed."""
    generation: int = 0
    """Generation of the service when the object was last tried."""
    not_before: float = 0.0
    """Time of the next try at the earliest, by what the server asked for."""
    due: float = 0.0
    """Time of the next try, unless the service is edited before."""

    def again(self, error: ClusterError, generation: int, now: float) -> "ApplyFailure":
        """Return what another try has left. The words stay while the status does: each change of
        them would be a write, and the next pass."""
        told = self.error if self.error.status == error.status else error
        not_before = now + error.retry_after
        due = now + backoff(self.times, error.retry_after)
        return ApplyFailure(told, self.times + 1, generation, not_before, due)

    def wait(self, generation: int, now: float) -> float:
        """Return seconds until the next try, at most 0 if it is time."""
        return (self.due if generation == self.generation else self.not_before) - now


class ApplyFailures:
    """The objects of one service that have failed at their last try."""

    def __init__(self) -> None:
        self._known: dict[ChildKey, ApplyFailure] = {}

    @property
    def lasting(self) -> dict[ChildKey, str]:
        """Objects for which there was no answer at least twice in a row, and why."""
        known = ((key, one.error) for key, one in self._known.items() if one.times > 1)
        return {key: error.reason for key, error in known if error.transient}

    def held(self, generation: int, now: float) -> dict[ChildKey, ClusterError]:
        """Return the objects that are not to be tried yet, and why."""
        known = self._known.items()
        return {key: one.error for key, one in known if one.wait(generation, now) > 0}

    def wait(self, generation: int, now: float) -> float:
        """Return seconds until one of them is to be tried; infinity: there is none."""
        waits = (max(0.0, one.wait(generation, now)) for one in self._known.values())
        return min(waits, default=math.inf)

    def learn(
        self,
        failed: Mapping[ChildKey, ClusterError],
        held: Set[ChildKey],
        generation: int,
        now: float,
    ) -> None:
        """Record what failed in a pass, or was `held` and not tried; the rest is forgotten."""
        before, self._known = self._known, {}
        for key, error in sorted(failed.items(), key=lambda item: item[0]):
            known = before.get(key, ApplyFailure(error))
            self._known[key] = known if key in held else known.again(error, generation, now)
