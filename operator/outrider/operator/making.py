"""The thin hand of a pass: makes the children as they are wanted, one after the other.

What is refused for one object's sake is said and does not keep the others from being made; what an
API server cannot answer just now ends the pass, which is tried again. Decides nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from outrider.operator.actions import Apply, Delete, Foreign, changes, ours
from outrider.operator.cluster import ClusterError
from outrider.operator.differences import Applied
from outrider.operator.kinds import BY_NAME
from outrider.operator.manifests.child import ChildKey
from outrider.operator.naming import FIELD_MANAGER
from outrider.operator.observed import Object, Observed, child_key
from outrider.operator.world import Hand
from outrider.operator.written import Written

SEED = f"{FIELD_MANAGER}-seed"
"""Field manager of a scaler's first number of replicas, which the operator never writes again."""


@dataclass(slots=True)
class Made:
    """What came of it."""

    foreign: list[ChildKey] = field(default_factory=list)
    """Objects of wanted names that belong to somebody else."""
    refused: dict[ChildKey, str] = field(default_factory=dict)
    """Objects that could not be written, and why."""

    def holds(self, key: ChildKey) -> bool:
        """Whether an object is as it was wanted."""
        return key not in self.refused and key not in self.foreign


@dataclass(frozen=True, slots=True)
class Maker:
    """Writes for one service."""

    hand: Hand
    seen: Observed
    applied: Applied
    written: Written

    async def make(self, wanted: Sequence[Object], seeds: Mapping[ChildKey, Object]) -> Made:
        """Does what is still to be done; `seeds` are what some objects are made from at first.

        Raises `ClusterError` where the API server has no answer just now.
        """
        made = Made()
        for action in changes(self.seen, wanted, self.applied):
            if isinstance(action, Delete) and made.refused:
                continue  # what could not be made may be why it is still needed
            try:
                await self._do(action, seeds, made)
            except ClusterError as error:
                if error.passing:
                    raise
                live = action.wanted if isinstance(action, Apply) else action.live
                made.refused[child_key(live)] = error.reason
        return made

    async def _do(
        self, action: Apply | Delete | Foreign, seeds: Mapping[ChildKey, Object], made: Made
    ) -> None:
        match action:
            case Apply(wanted):
                if not await self._apply(wanted, seeds):
                    made.foreign.append(child_key(wanted))
            case Delete(live):
                await self._delete(live)
            case Foreign(live):
                made.foreign.append(child_key(live))

    async def _apply(self, wanted: Object, seeds: Mapping[ChildKey, Object]) -> bool:
        """Whether the object was this service's to write."""
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
