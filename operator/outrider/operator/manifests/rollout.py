"""Next step of a roll-out whose replicas are groups: how many to make, which to delete.

Pure arithmetic by the rules that a Deployment's controller has for single pods: it converges from
any state, and wherever it is interrupted. Knows nothing of the groups' objects.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from outrider.operator.spec import Strategy, Update

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Group(Generic[Key]):
    key: Key
    """Unique among the groups of a role."""
    fresh: bool
    """True if it is as the description says now."""
    ready: bool


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of a roll-out, in groups."""

    replicas: int
    """Groups that are wanted."""
    unavailable: int
    """Most of them that may be missing."""
    surge: int
    """Most groups above them."""
    recreate: bool = False
    """True if all old groups go before new ones are made."""


@dataclass(frozen=True, slots=True)
class RolloutStep(Generic[Key]):
    """One step: first new groups are made, then old ones are deleted."""

    make: int
    gone: frozenset[Key]


def bounds(replicas: int, update: Update) -> Bounds:
    """Return the bounds in groups; percentages are rounded as Deployments do it."""
    if update.strategy is Strategy.RECREATE:
        return Bounds(replicas, replicas, 0, recreate=True)
    surge = _share(update.max_surge, replicas, up=True)
    unavailable = _share(update.max_unavailable, replicas, up=False)
    return Bounds(replicas, unavailable if unavailable or surge else 1, surge)


def step(groups: Sequence[Group[Key]], to: Bounds, leaving: bool) -> RolloutStep[Key]:
    """Return the next step; the last of `groups` are the first that are too many.

    `leaving`: pods of older groups are still being deleted, for which only `recreate` waits.
    """
    fresh = sum(group.fresh for group in groups)
    wait = to.recreate and (leaving or fresh < len(groups))
    room = min(to.replicas - fresh, to.replicas + to.surge - len(groups))
    return RolloutStep(0 if wait else max(0, room), frozenset(_gone(groups, to)))


def _gone(groups: Sequence[Group[Key]], to: Bounds) -> list[Key]:
    """Return the groups to delete: not ready ones first, old ones before those that are too many.
    Old groups that are not ready may come back, and count like ready ones."""
    least = to.replicas - to.unavailable
    fresh, ready = sum(one.fresh for one in groups), sum(one.ready for one in groups)
    counted = sum(one.ready or not one.fresh for one in groups)
    gone: list[Key] = []
    for group in sorted(reversed(groups), key=lambda one: (one.ready, one.fresh)):
        if group.fresh and fresh <= to.replicas:
            continue
        if ready > least if group.ready else group.fresh or counted > least:
            gone.append(group.key)
            fresh, ready = fresh - group.fresh, ready - group.ready
            counted -= group.ready or not group.fresh
    return gone


def _share(amount: int | str, whole: int, up: bool) -> int:
    if isinstance(amount, int):
        return amount
    percent = int(amount.removesuffix("%"))
    return -(-percent * whole // 100) if up else percent * whole // 100
