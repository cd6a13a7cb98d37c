"""Observed state of a service: itself, its children, its pods, as plain data.

Made from the watch caches and never changed; makes no request.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from outrider.contract.settings import Role
from outrider.operator.cluster.kinds import (
    CONFIG_MAP,
    ROLE_SCALER,
    ChildKey,
    ServiceKey,
)
from outrider.operator.naming import (
    MEMORY_KEY,
    ROLE_LABEL,
    intent_name,
    member_names,
    role_name,
)
from outrider.operator.observed.live_workloads import LiveWorkloads, live_workloads, owned
from outrider.operator.observed.owner import Owner
from outrider.operator.observed.pins import Pin
from outrider.operator.observed.pods import Pod, pod
from outrider.operator.observed.workload import Workload, workload

Object = Mapping[str, Any]
ROLES = frozenset(role.value for role in Role)


@dataclass(frozen=True)
class Observed:
    """The state that a pass starts from."""

    owner: Owner
    generation: int
    raw: Object
    """The service as the API server holds it."""
    children: Mapping[ChildKey, Object]
    pods: Sequence[Pod]
    """Pods that answer: one for each replica."""
    followers: Sequence[Pod] = ()
    """The other pods of replicas on several machines."""
    lent: Sequence[Pod] = ()
    """Pods of another service's drafts, to which the targets link."""
    live_workloads: Mapping[Role, LiveWorkloads] = field(default_factory=dict)
    """The objects that keep each role's pods running."""
    workloads: Mapping[Role, Workload] = field(default_factory=dict)
    """Workload of each role, once it is there."""

    @property
    def key(self) -> ServiceKey:
        """Namespace and name of the service."""
        return self.owner.namespace, self.owner.name

    def workload(self, role: Role) -> Workload | None:
        """Return one role's workload, once it is there."""
        return self.workloads.get(role)

    def pods_of(self, role: Role) -> tuple[Pod, ...]:
        """Return one role's pods that answer and are not being deleted, by name."""
        return self._staying[role]

    def serving(self, role: Role) -> tuple[Pod, ...]:
        """Return one role's pods that take requests or sessions; one of several needs all of
        them."""
        return self._serving[role]

    @property
    def drafts(self) -> tuple[Pod, ...]:
        """Pods of drafts that take sessions: its own and another service's."""
        return (*self.serving(Role.DRAFT), *(pod for pod in self.lent if pod.ready and pod.running))

    def members_of(self, role: Role) -> tuple[Pod, ...]:
        """Return the pods of `pods_of` and after them the other pods of their replicas."""
        return (*self.pods_of(role), *_staying(self.followers, role))

    def groups_of(self, role: Role) -> Mapping[str, tuple[str, ...]]:
        """Return the names of the pods of each replica that has several, by the replica's name.

        While a LeaderWorkerSet rolls, replicas of its former size stay what they are, and some are
        there beyond those that it wants: what a leader says of its own replica counts.
        """
        wanted = self.live_workloads.get(role, LiveWorkloads()).members
        known = (pod for pod in self.pods_of(role) if pod.group and pod.size)
        return {**wanted, **{pod.group: member_names(pod.group, pod.size) for pod in known}}

    def scaler_replicas(self, role: Role) -> int | None:
        """Return the number that an autoscaler, or a human, asks for through the role's scaler."""
        live = self.children.get((ROLE_SCALER.name, role_name(self.owner.name, role)))
        wanted = None if live is None else live["spec"].get("replicas")
        return None if wanted is None else int(wanted)

    @property
    def memory(self) -> str | None:
        """The stored memory of the control loop; None if there is none."""
        intent = self.children.get((CONFIG_MAP.name, intent_name(self.owner.name)))
        if intent is None or not self.owns(intent):
            return None
        memory: str | None = intent.get("data", {}).get(MEMORY_KEY)
        return memory

    def owns(self, live: Object) -> bool:
        """True if an object is owned by this very service."""
        return owned(live, self.owner)

    @cached_property
    def is_steady(self) -> bool:
        """True if none of it changes by the clock alone: every pod is ready and nothing is wrong
        with it, and every workload has come to rest."""
        pods = (*self.pods, *self.followers, *self.lent)
        each = (one for current in self.live_workloads.values() for one in current.workloads)
        return (
            all(pod.ready and not pod.leaving and not pod.trouble for pod in pods)
            and all(live.settled and not live.failed for live in self.workloads.values())
            and not any(one.has_surge for one in each)
        )

    @cached_property
    def _staying(self) -> Mapping[Role, tuple[Pod, ...]]:
        return {role: _staying(self.pods, role) for role in Role}

    @cached_property
    def _serving(self) -> Mapping[Role, tuple[Pod, ...]]:
        ready = {role: [p for p in self.pods_of(role) if p.ready and p.running] for role in Role}
        return {role: tuple(filter(self._is_complete, pods)) for role, pods in ready.items()}

    def _is_complete(self, leader: Pod) -> bool:
        """True if all pods of a leader's replica are ready."""
        if not leader.group:
            return True
        present = [one for one in self.members_of(leader.role) if one.group == leader.group]
        names = self.groups_of(leader.role).get(leader.group, ())
        return sum(one.ready and one.running for one in present) >= max(len(names), len(present))

    @property
    def status(self) -> Object:
        """Status of the service as it was last written."""
        status: Object = self.raw.get("status") or {}
        return status


def observe(
    raw: Object,
    children: Iterable[Object],
    pods: Iterable[Object],
    at: float = 0.0,
    lender: Iterable[Object] = (),
) -> Observed:
    """Return the observed state from raw objects; `at` in seconds since the epoch; `lender`: pods
    of the service whose drafts its targets link to."""
    meta = raw["metadata"]
    owner = Owner.of(raw)
    known = {child_key(c): c for c in children}
    mine = [p for p in pods if p["metadata"]["labels"].get(ROLE_LABEL) in ROLES]
    every = [pod(p, at) for p in mine]
    lives = {role: live_workloads(known, every, owner, role, Pin.of(raw, role)) for role in Role}
    leaders = tuple(p for p in every if p.is_leader)
    lent = (pod(p, at) for p in lender if p["metadata"]["labels"].get(ROLE_LABEL) == Role.DRAFT)
    found = {role: _workload(one, _staying(leaders, role), at) for role, one in lives.items()}
    return Observed(
        owner=owner,
        generation=int(meta["generation"]),
        raw=raw,
        children=known,
        pods=leaders,
        followers=tuple(p for p in every if not p.is_leader),
        lent=_staying([p for p in lent if p.is_leader], Role.DRAFT),
        live_workloads=lives,
        workloads={role: live for role, live in found.items() if live is not None},
    )


class Observer:
    """Observes one service; objects that are the same as before, and steady, are read once."""

    def __init__(self) -> None:
        self._seen: tuple[Object, list[Object], list[Object], list[Object]] | None = None
        self._found: Observed | None = None

    def observe(
        self,
        raw: Object,
        children: Iterable[Object],
        pods: Iterable[Object],
        at: float,
        lender: Iterable[Object] = (),
    ) -> Observed:
        """Return the observed state as `observe` does: the very same while nothing changes."""
        seen = (raw, [*children], [*pods], [*lender])
        if self._found is None or not self._found.is_steady or seen != self._seen:
            self._seen, self._found = seen, observe(raw, seen[1], seen[2], at, seen[3])
        return self._found


def _workload(current: LiveWorkloads, leaders: Sequence[Pod], at: float) -> Workload | None:
    """Return a role's workload; of one that changes its kind, with the replicas of both."""
    if current.newest is None:
        return None
    found = workload(current.newest.live, leaders, at)
    if len(current.workloads) == 1:
        return found
    ready = sum(one.ready for one in current.workloads)
    return replace(found, ready=ready, available=ready, settled=False, replacing=True)


def child_key(child: Object) -> ChildKey:
    """Return the key of a child among those of its service."""
    return child["kind"], child["metadata"]["name"]


def _staying(pods: Iterable[Pod], role: Role) -> tuple[Pod, ...]:
    mine = (pod for pod in pods if pod.role is role and not pod.leaving)
    return tuple(sorted(mine, key=lambda pod: pod.name))
