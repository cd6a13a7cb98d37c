"""Waves of upgrades: which services take up what a newer operator makes of their pods, and when.

A service's turn is marked on its stored intent before its pods are replaced, so that another leader
goes on with the same ones; it lasts until all of its pods are new and available. At most so many
services at once are given a turn. Leaves what waits, and why, to `manifests.pins`.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from outrider.operator.cluster.kinds import ServiceKey
from outrider.operator.manifests.desired import Desired, roles
from outrider.operator.observed import Observed
from outrider.operator.spec import SpeculativeService, Upgrade

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Waves:
    """Turns of all services of one operator."""

    max_services: int
    """Most services whose upgrade is under way at once; 0: none is given a turn."""
    paused: bool
    """True if no upgrade begins, not even one that a service asks for."""
    services: Callable[[], Iterable[ServiceKey]]
    """Returns all services that the watches show."""
    marked: Callable[[ServiceKey], bool]
    """True if the watches show that a service's turn is marked in the cluster."""
    wake: Callable[[ServiceKey], None] = field(default=lambda key: None)
    """Asks for a pass over a service."""
    _under_way: dict[ServiceKey, bool] = field(default_factory=dict)
    """As the last pass over each service left it."""
    _waiting: set[ServiceKey] = field(default_factory=set)
    _logged: frozenset[ServiceKey] = frozenset()
    """Services of which the log said last that others wait for them."""

    @property
    def waiting(self) -> int:
        """Number of services that wait for their turn."""
        return len(self._waiting)

    @property
    def under_way(self) -> frozenset[ServiceKey]:
        """Services whose upgrade is under way. What this process has not passed over yet counts as
        the cluster says."""
        unseen = (key for key in self.services() if key not in self._under_way)
        mine = (key for key, is_so in self._under_way.items() if is_so)
        return frozenset((*filter(self.marked, unseen), *mine))

    def is_turn(self, observed: Observed, service: SpeculativeService, wanted: Desired) -> bool:
        """True if a service's pods are to be as today's operator makes them; `wanted` is what is
        wanted of it by the turn that is marked."""
        if observed.upgrading:
            turn = not _is_complete(observed, wanted)
        else:
            turn = bool(wanted.next_revisions) and self._may_begin(observed, service)
        has_turns = service.spec.upgrade is not Upgrade.ON_EDIT
        self._note(observed.key, turn, waits=has_turns and bool(wanted.next_revisions) and not turn)
        return turn

    def leave(self, key: ServiceKey) -> None:
        """Let others go on meanwhile: a service cannot be read. Its turn stays marked, and goes on
        once it can."""
        self._note(key, turn=False, waits=False)

    def forget(self, key: ServiceKey) -> None:
        """Drop a service that is gone."""
        self.leave(key)
        del self._under_way[key]

    def _may_begin(self, observed: Observed, service: SpeculativeService) -> bool:
        if self.paused or service.spec.upgrade is Upgrade.ON_EDIT:
            return False
        if service.spec.upgrade is Upgrade.AT_ONCE:
            return True
        return self._has_room(observed.key) and _is_at_rest(observed, service)

    def _has_room(self, key: ServiceKey) -> bool:
        """True if a service may have a turn beside the others; logs for whom it waits."""
        others = self.under_way - {key}
        if len(others) < self.max_services:
            return True
        if self.max_services and others != self._logged:
            names = ", ".join(f"{namespace}/{name}" for namespace, name in sorted(others))
            log.info("upgrades wait for %s (at most %d at once)", names, self.max_services)
            self._logged = others
        return False

    def _note(self, key: ServiceKey, turn: bool, waits: bool) -> None:
        """Record where a service stands; one that has made room wakes those that wait: some of them
        may not be at rest."""
        ended = self._has_turn(key) and not turn
        self._under_way[key] = turn
        (self._waiting.add if waits else self._waiting.discard)(key)
        if ended and self.max_services and not self.paused:
            for one in sorted(self._waiting):
                self.wake(one)

    def _has_turn(self, key: ServiceKey) -> bool:
        known = self._under_way.get(key)
        return self.marked(key) if known is None else known


def _is_complete(observed: Observed, wanted: Desired) -> bool:
    """True if all pods of all roles are of the wanted revisions, and available."""
    found = ((observed.workload(role), revision) for role, revision in wanted.revisions.items())
    return all(
        live is not None and live.settled and live.revision == revision for live, revision in found
    )


def _is_at_rest(observed: Observed, service: SpeculativeService) -> bool:
    """True if nothing of a service is rolling, missing or failing: one that does not get ready
    would keep its turn from all others."""
    lives = (observed.workload(role) for role in roles(service))
    return all(live is not None and live.settled and not live.failed for live in lives)
