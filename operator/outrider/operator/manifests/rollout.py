"""Next step of a role that changes from pods alone to groups of pods, or back. Pure arithmetic.

Replicas of the old kind give way to new ones by the rules that a Deployment's controller has for
its pods: it converges from any state, and wherever it is interrupted.
"""

from dataclasses import dataclass

from outrider.operator.spec.pods import Strategy, Update


@dataclass(frozen=True, slots=True)
class Count:
    """Replicas of one kind."""

    replicas: int = 0
    ready: int = 0


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of a rollout, in replicas."""

    replicas: int
    """Replicas that are wanted."""
    unavailable: int
    """Most of them that may be missing."""
    surge: int
    """Most replicas above them."""
    recreate: bool = False
    """True if all old replicas go before new ones are made."""


def bounds(replicas: int, update: Update) -> Bounds:
    """Return the bounds in replicas; percentages are rounded as Deployments do it."""
    if update.strategy is Strategy.RECREATE:
        return Bounds(replicas, replicas, 0, recreate=True)
    surge = _share(update.max_surge, replicas, up=True)
    unavailable = _share(update.max_unavailable, replicas, up=False)
    return Bounds(replicas, unavailable if unavailable or surge else 1, surge)


def step(old: Count, new: Count, to: Bounds, leaving: bool) -> tuple[int, int]:
    """Return how many old and new replicas there are to be next.

    `leaving`: old pods are still being deleted, for which only `recreate` waits.
    """
    wait = to.recreate and (leaving or bool(old.replicas))
    room = min(to.replicas - new.replicas, to.replicas + to.surge - old.replicas - new.replicas)
    made = 0 if wait else max(0, room)
    old_left, new_left = _left(old, new, to)
    return old_left, new_left + made


def _left(old: Count, new: Count, to: Bounds) -> tuple[int, int]:
    """Return the replicas that stay: those that are not ready go first, old ones before new ones
    that are too many. Old ones that are not ready may come back, and count like ready ones."""
    spare = max(0, old.replicas + new.ready - to.replicas + to.unavailable)
    lost = min(old.replicas - old.ready, spare)
    surplus = max(0, new.replicas - to.replicas)
    unready = min(new.replicas - new.ready, surplus)
    spare = max(0, old.ready + new.ready - to.replicas + to.unavailable)
    replaced = min(old.ready, spare)
    serving = min(surplus - unready, spare - replaced)
    return old.replicas - lost - replaced, new.replicas - unready - serving


def _share(amount: int | str, whole: int, up: bool) -> int:
    if isinstance(amount, int):
        return amount
    percent = int(amount.removesuffix("%"))
    return -(-percent * whole // 100) if up else percent * whole // 100
