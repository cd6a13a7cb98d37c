"""The thin hand of a pass: makes the children as they are wanted, what pods start from first.

What is refused for one object's sake is said and keeps back only what makes pods that would start
from it; what an API server cannot answer just now ends the pass, which is tried again. Decides
nothing.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from outrider.operator.actions import Apply, Delete, Foreign, changes, ours
from outrider.operator.cluster import ClusterError
from outrider.operator.differences import Applied
from outrider.operator.interfaces import Hand
from outrider.operator.kinds import (
    BY_NAME,
    CLAIM,
    CONFIG_MAP,
    DEPLOYMENT,
    LEADER_WORKER_SET,
    NETWORK_POLICY,
    NETWORK_SERVICE,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
)
from outrider.operator.manifests.child import ChildKey
from outrider.operator.naming import FIELD_MANAGER, ROLE_LABEL
from outrider.operator.observed import Object, Observed, child_key
from outrider.operator.own_writes import Written

Action = Apply | Delete | Foreign
SEED = f"{FIELD_MANAGER}-seed"
"""Field manager of a scaler's first number of replicas, which the operator never writes again."""
BEFORE_PODS = frozenset(
    kind.name for kind in (SERVICE_ACCOUNT, CONFIG_MAP, CLAIM, NETWORK_SERVICE, NETWORK_POLICY)
)
"""Kinds that are there before what makes pods is told anything: pods start from them, and the
intent must outlive what is done about it."""
NEEDED = frozenset(kind.name for kind in (SERVICE_ACCOUNT, CLAIM))
"""Kinds without which no pod starts, whatever they hold; of ConfigMaps the content matters too."""
WORKLOADS = frozenset(kind.name for kind in (DEPLOYMENT, STATEFUL_SET, LEADER_WORKER_SET))


@dataclass(slots=True)
class Made:
    """What came of it."""

    foreign: list[ChildKey] = field(default_factory=list)
    """Objects of wanted names that belong to somebody else."""
    refused: dict[ChildKey, str] = field(default_factory=dict)
    """Objects that could not be written, and why."""
    waiting: dict[ChildKey, ChildKey] = field(default_factory=dict)
    """Workloads that were left as they are, and what their pods need that was not made: old pods
    would end, and new ones could not start."""

    def holds(self, key: ChildKey) -> bool:
        """Whether an object is as it was wanted."""
        return not any(key in found for found in (self.refused, self.foreign, self.waiting))


@dataclass(frozen=True, slots=True)
class Maker:
    """Writes for one service."""

    hand: Hand
    seen: Observed
    applied: Applied
    written: Written

    async def make(self, wanted: Sequence[Object], seeds: Mapping[ChildKey, Object]) -> Made:
        """Does what is still to be done; `seeds` are what some objects are made from at first.

        Objects of one stage are made at once: `Cluster` bounds how many requests wait. Raises
        `ClusterError` where the API server has no answer just now.
        """
        made = Made()
        for stage in stages(changes(self.seen, wanted, self.applied)):
            if (made.refused or made.waiting) and isinstance(stage[0], Delete):
                break  # what could not be made may be why it is still needed
            lacking = [one for one in wanted if self._lacks(made, one)]
            ready = list(_ready(made, stage, lacking))
            doing = (self._do(action, seeds) for action in ready)
            outcomes = await asyncio.gather(*doing, return_exceptions=True)
            for action, outcome in zip(ready, outcomes, strict=True):
                _take(made, action, outcome)
        return made

    def _lacks(self, made: Made, one: Object) -> bool:
        """Whether pods would start without an object, or by a decision that is not stored."""
        key = child_key(one)
        if one["kind"] == CONFIG_MAP.name:
            return not made.holds(key)
        return one["kind"] in NEEDED and key in made.refused and key not in self.seen.children

    async def _do(self, action: Action, seeds: Mapping[ChildKey, Object]) -> bool:
        """Whether the object was this service's to write."""
        match action:
            case Apply(wanted):
                return await self._apply(wanted, seeds)
            case Delete(live):
                await self._delete(live)
                return True
            case Foreign():
                return False

    async def _apply(self, wanted: Object, seeds: Mapping[ChildKey, Object]) -> bool:
        key, meta = child_key(wanted), wanted["metadata"]
        before = self.seen.children.get(key)
        if before is None:  # watches show only what carries the operator's label
            before = await self.hand.get(BY_NAME[wanted["kind"]], meta["namespace"], meta["name"])
            if before is not None and not ours(before, self.seen):
                return False
            if before is None and key in seeds:
                await self.hand.apply(seeds[key], manager=SEED)
        answer = await self.hand.apply(wanted)
        self.applied.learn(wanted, answer)
        self.written.learn(key, self.seen.children.get(key), answer)
        return True

    async def _delete(self, live: Object) -> None:
        meta = live["metadata"]
        await self.hand.delete(BY_NAME[live["kind"]], meta["namespace"], meta["name"], meta["uid"])
        self.applied.forget(live)
        self.written.learn(child_key(live), live, None)


def stages(actions: Iterable[Action]) -> list[list[Action]]:
    """What is done at once: what pods start from, all else that is wanted, deletions."""
    found: tuple[list[Action], ...] = ([], [], [])
    for action in actions:
        if isinstance(action, Delete):
            found[2].append(action)
        else:
            found[0 if _object(action)["kind"] in BEFORE_PODS else 1].append(action)
    return [stage for stage in found if stage]


def _ready(made: Made, stage: Iterable[Action], lacking: Sequence[Object]) -> Iterator[Action]:
    """What may be done now; notes which workloads wait, and for what."""
    for action in stage:
        one = _object(action)
        roles = ("", _role(one))  # what has no role is every role's
        lack = next((needed for needed in lacking if _role(needed) in roles), None)
        if lack is not None and one["kind"] in WORKLOADS and isinstance(action, Apply):
            made.waiting[child_key(one)] = child_key(lack)
        else:
            yield action


def _take(made: Made, action: Action, outcome: bool | BaseException) -> None:
    """Notes what came of an action; raises what ends the pass."""
    key = child_key(_object(action))
    if isinstance(outcome, ClusterError) and not outcome.passing:
        made.refused[key] = outcome.reason
    elif isinstance(outcome, BaseException):
        raise outcome
    elif not outcome:
        made.foreign.append(key)


def _role(one: Object) -> str:
    """Empty: every role's."""
    return str(one["metadata"]["labels"].get(ROLE_LABEL, ""))


def _object(action: Action) -> Object:
    return action.wanted if isinstance(action, Apply) else action.live
