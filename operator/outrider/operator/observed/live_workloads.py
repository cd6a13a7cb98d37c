"""Live workloads: the objects that keep the pods of one role running, whose replicas they count.

Made from children as the cluster shows them. A role has two only while it changes from replicas of
one pod to replicas of several, or back. Leaves the next step to `workload_plan`.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from outrider.contract.settings import Role
from outrider.operator.cluster.kinds import CONFIG_MAP, DEPLOYMENT, LEADER_WORKER_SET, ChildKey
from outrider.operator.naming import (
    FIELD_MANAGER,
    REPLICAS_ANNOTATION,
    labels,
    member_names,
    role_name,
)
from outrider.operator.observed.owner import Owner
from outrider.operator.observed.pins import (
    UNSEEN,
    Pin,
    as_written,
    restarted_at,
    revision_of,
    settings_of,
    template_of,
)
from outrider.operator.observed.pods import Pod

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LiveWorkload:
    """A Deployment, whose replicas are pods, or a LeaderWorkerSet, whose replicas are groups."""

    live: Object

    @property
    def kind(self) -> str:
        return str(self.live["kind"])

    @property
    def replicas(self) -> int:
        """Replicas that it keeps running."""
        return int(self.live["spec"].get("replicas", 1))

    @property
    def noted(self) -> int | None:
        """Replicas that its annotation says are wanted; None: it says nothing."""
        text = self.live["metadata"].get("annotations", {}).get(REPLICAS_ANNOTATION, "")
        return int(text) if text.isdecimal() else None

    @property
    def wanted(self) -> int:
        """Replicas that are wanted."""
        return self.replicas if self.noted is None else self.noted

    @property
    def has_surge(self) -> bool:
        """True if it has more replicas than are wanted."""
        return self.replicas > self.wanted

    @property
    def ready(self) -> int:
        """Replicas that serve."""
        return min(int(self.live.get("status", {}).get("readyReplicas", 0)), self.replicas)

    @property
    def members(self) -> dict[str, tuple[str, ...]]:
        """Names of each group's pods in the order of their numbers, by the group's, as the object
        wants them now; none of a Deployment."""
        if self.kind != LEADER_WORKER_SET.name:
            return {}
        size = int(self.live["spec"]["leaderWorkerTemplate"].get("size", 1))
        numbers = range(min(self.wanted, self.replicas))
        names = (f"{self.live['metadata']['name']}-{number}" for number in numbers)
        return {name: member_names(name, size) for name in names}


@dataclass(frozen=True, slots=True)
class LiveWorkloads:
    """Live workloads and groups of one role."""

    workloads: tuple[LiveWorkload, ...] = ()
    groups: Mapping[str, tuple[Pod, ...]] = dataclasses.field(default_factory=dict)
    """Pods of the groups of a LeaderWorkerSet that stay, by the groups' names."""
    pod_kinds: frozenset[str] = frozenset()
    """Kinds of workloads of which there are pods, those being deleted included."""
    pin: Pin = UNSEEN
    """What the last pass said of the role's pod template."""
    config_maps: frozenset[str] = frozenset()
    """Names of the service's ConfigMaps."""

    def of(self, kind: str) -> LiveWorkload | None:
        """Return the workload of a kind."""
        return next((one for one in self.workloads if one.kind == kind), None)

    @property
    def newest(self) -> LiveWorkload | None:
        """The workload that stays: where there are two, the one that says how many are wanted."""
        noted = (one for one in self.workloads if one.noted is not None)
        return next(itertools.chain(noted, self.workloads), None)

    @property
    def members(self) -> dict[str, tuple[str, ...]]:
        """Names of the pods of all groups, by the group's."""
        return {name: pods for one in self.workloads for name, pods in one.members.items()}

    def kept(self, kind: str, built: Object) -> dict[str, Any] | None:
        """Return the template that pods of a kind of workload keep instead of a `built` one; None:
        they do not. They cannot without the settings that they start from."""
        live = self.of(kind)
        if live is None or not self.pin.holds(revision_of(built)):
            return None
        template = template_of(live.live)
        startable = self.config_maps.issuperset(settings_of(template))
        asked = restarted_at(template) != restarted_at(built)
        held = revision_of(template) == self.pin.revision and startable and not asked
        return as_written(template) if held else None


def live_workloads(
    children: Mapping[ChildKey, Object],
    pods: Iterable[Pod],
    owner: Owner,
    role: Role,
    pin: Pin = UNSEEN,
) -> LiveWorkloads:
    """Return a role's workloads; `pods` are the service's, and `pin` is what its status says."""
    name = role_name(owner.name, role)
    lives = (children.get((kind.name, name)) for kind in (DEPLOYMENT, LEADER_WORKER_SET))
    mine = [pod for pod in pods if pod.role is role]
    groups: dict[str, tuple[Pod, ...]] = {}
    for pod in mine:
        if pod.group and not pod.leaving:
            groups[pod.group] = (*groups.get(pod.group, ()), pod)
    return LiveWorkloads(
        workloads=tuple(
            LiveWorkload(one) for one in lives if one is not None and owned(one, owner)
        ),
        groups=groups,
        pod_kinds=frozenset((LEADER_WORKER_SET if p.group else DEPLOYMENT).name for p in mine),
        pin=pin,
        config_maps=frozenset(name for kind, name in children if kind == CONFIG_MAP.name),
    )


def workload_uids(children: Iterable[Object], owner: Owner) -> frozenset[str]:
    """Return the uids of the workloads that a service has made for its roles."""
    kinds = (DEPLOYMENT.name, LEADER_WORKER_SET.name)
    names = {role_name(owner.name, role) for role in Role}
    return frozenset(
        one["metadata"]["uid"]
        for one in children
        if one["kind"] in kinds and one["metadata"]["name"] in names and owned(one, owner)
    )


def owned(live: Object, owner: Owner) -> bool:
    """True if this very service owns an object; another service of its name, now gone, may have
    left one."""
    owners: Iterable[Object] = live["metadata"].get("ownerReferences", ())
    return any(one.get("uid") == owner.uid for one in owners)


def orphaned(live: Object, owner: Owner) -> bool:
    """True for an object that the operator made for a service of this name and that nobody owns:
    the service was deleted with `--cascade=orphan`, or restored from a backup."""
    meta = live["metadata"]
    own = labels(owner.name)
    managers = (one.get("manager") for one in meta.get("managedFields", ()))
    return (
        not meta.get("ownerReferences")
        and own.items() <= meta.get("labels", {}).items()
        and FIELD_MANAGER in managers
    )
