"""Carriers: the live objects that keep the pods of one role running, one in all or one a group.

Made from children as the cluster shows them. A role has several kinds only while it changes from
one to the other. Leaves the next step to `workload_plan`.
"""

import dataclasses
import datetime
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from outrider.contract.settings import Role
from outrider.operator.cluster.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    LEADER_WORKER_SET,
    NETWORK_SERVICE,
    STATEFUL_SET,
    ChildKey,
)
from outrider.operator.manifests.child import Owner
from outrider.operator.manifests.pins import (
    UNSEEN,
    Pin,
    as_written,
    restarted_at,
    revision_of,
    settings_of,
    template_of,
)
from outrider.operator.naming import (
    GROUP_LABEL,
    KIND_ANNOTATION,
    PROGRESS_ANNOTATION,
    REPLICAS_ANNOTATION,
    REVISION_LABEL,
    ROLE_LABEL,
    SERVED_ANNOTATION,
    WORKER_GROUP,
    member_names,
    nodes_name,
    role_name,
)

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Carrier:
    """An object that keeps groups running: a StatefulSet one, the other kinds all of a role's."""

    live: Object

    @property
    def kind(self) -> str:
        return str(self.live["kind"])

    @property
    def name(self) -> str:
        return str(self.live["metadata"]["name"])

    @property
    def revision(self) -> str:
        """Revision of a StatefulSet's pods, which never change."""
        return str(self.live["metadata"].get("labels", {}).get(REVISION_LABEL, ""))

    @property
    def groups(self) -> int:
        """Groups that it keeps running."""
        one = self.kind == STATEFUL_SET.name
        return 1 if one else int(self.live["spec"].get("replicas", 1))

    @property
    def wanted(self) -> int:
        """Groups that are wanted: a LeaderWorkerSet may have more while it rolls."""
        said = self.live["metadata"].get("annotations", {}).get(REPLICAS_ANNOTATION, "")
        return min(int(said), self.groups) if said.isdecimal() else self.groups

    @property
    def has_surge(self) -> bool:
        """True if it has more groups than are wanted."""
        return self.groups > self.wanted

    @property
    def ready(self) -> int:
        """Groups that serve: a StatefulSet's group serves once all of its pods are ready."""
        status = self.live.get("status", {})
        pods = int(status.get("readyReplicas", 0))
        if self.kind != STATEFUL_SET.name:
            return min(pods, self.groups)
        return int(pods >= int(self.live["spec"].get("replicas", 1)))

    @property
    def members(self) -> dict[str, tuple[str, ...]]:
        """Names of each group's pods in the order of their numbers, by the group's, as the object
        wants them now; none of a Deployment, whose pods are replicas."""
        if self.kind == STATEFUL_SET.name:
            pods = range(int(self.live["spec"].get("replicas", 1)))
            return {self.name: tuple(f"{self.name}-{n}" for n in pods)}
        if self.kind != LEADER_WORKER_SET.name:
            return {}
        size = int(self.live["spec"]["leaderWorkerTemplate"].get("size", 1))
        names = (f"{self.name}-{group}" for group in range(self.wanted))
        return {name: member_names(name, size) for name in names}

    def fresh(self, kind: str, revision: str) -> bool:
        """True if it is of this kind, and a StatefulSet of this revision too."""
        return self.kind == kind and (kind != STATEFUL_SET.name or self.revision == revision)

    @property
    def served(self) -> bool:
        """True if it serves, or if it is a StatefulSet that has served."""
        return bool(self.ready) or SERVED_ANNOTATION in self.live["metadata"].get("annotations", {})

    def late(self, seconds: float, now: float) -> bool:
        """True if it has never served in so many seconds; `now` in seconds since the epoch."""
        return bool(self.groups) and not self.served and age(self.live, now) > seconds


@dataclass(frozen=True, slots=True)
class Record:
    """Wanted state of a role whose groups have an object each; stored with their Service."""

    replicas: int
    kind: str
    """Kind of the workload that the role is to have."""
    revision: str
    """Revision of the newest pods."""
    progress: int
    """Seconds in which a new group is to get ready."""


@dataclass(frozen=True, slots=True)
class Member:
    """A pod of a group, which stays."""

    revision: str
    ready: bool


@dataclass(frozen=True, slots=True)
class RoleCarriers:
    """Live carriers and groups of one role."""

    carriers: tuple[Carrier, ...] = ()
    record: Record | None = None
    deleting: frozenset[str] = frozenset()
    """Names of groups whose pods, or whose object, are being deleted."""
    known: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Revisions of the groups whose pods are there and stay, by name; the object of one may be out
    of sight because a user removed its labels."""
    numbered: Mapping[int, tuple[Member, ...]] = dataclasses.field(default_factory=dict)
    """Pods of the groups of a LeaderWorkerSet, by the groups' numbers."""
    revisions: frozenset[str] = frozenset()
    """Revisions of all pods, those being deleted included."""
    pin: Pin = UNSEEN
    """What the last pass said of the role's pod template."""
    config_maps: frozenset[str] = frozenset()
    """Names of the service's ConfigMaps."""

    def of(self, kind: str) -> tuple[Carrier, ...]:
        """Return the carriers of a kind."""
        return tuple(one for one in self.carriers if one.kind == kind)

    def kept(self, kind: str, built: Object) -> dict[str, Any] | None:
        """Return the template that pods of a kind of workload keep instead of a `built` one; None:
        they do not. They cannot without the settings that they start from."""
        if not self.pin.holds(revision_of(built)):
            return None
        lives = (template_of(one.live) for one in self.of(kind))
        for live in lives:
            startable = self.config_maps.issuperset(settings_of(live))
            asked = restarted_at(live) != restarted_at(built)
            if revision_of(live) == self.pin.revision and startable and not asked:
                return as_written(live)
        return None

    @property
    def members(self) -> dict[str, tuple[str, ...]]:
        """Names of the pods of all groups, by the group's."""
        return {name: pods for one in self.carriers for name, pods in one.members.items()}


def find_carriers(
    children: Mapping[ChildKey, Object],
    pods: Iterable[Object],
    owner: Owner,
    role: Role,
    pin: Pin = UNSEEN,
) -> RoleCarriers:
    """Return a role's carriers; `pods` are the service's, as the cluster shows them, and `pin` is
    what its status says."""
    mine = [child for child in children.values() if owned(child, owner)]
    sets = [one for one in mine if one["kind"] == STATEFUL_SET.name and _role(one) == role]
    single = {(kind.name, role_name(owner.name, role)) for kind in (DEPLOYMENT, LEADER_WORKER_SET)}
    whole = [one for one in mine if (one["kind"], one["metadata"]["name"]) in single]
    every = [pod for pod in pods if _role(pod) == role]
    metas = [pod["metadata"] for pod in every]
    leaving = [meta for meta in metas if "deletionTimestamp" in meta]
    staying = [pod for pod in every if "deletionTimestamp" not in pod["metadata"]]
    here = [pod["metadata"]["labels"] for pod in staying]
    known = {
        labels[GROUP_LABEL]: labels.get(REVISION_LABEL, "")
        for labels in here
        if GROUP_LABEL in labels
    }
    going = [one["metadata"]["name"] for one in sets if "deletionTimestamp" in one["metadata"]]
    stay = [one for one in sets if "deletionTimestamp" not in one["metadata"]]
    return RoleCarriers(
        carriers=tuple(Carrier(one) for one in (*whole, *sorted(stay, key=_index))),
        record=_record(children.get((NETWORK_SERVICE.name, nodes_name(owner.name, role))), owner),
        deleting=frozenset((*going, *(set(_words(leaving, GROUP_LABEL)) - known.keys()))),
        known=known,
        numbered=_numbered(staying),
        revisions=frozenset(_words(metas, REVISION_LABEL)),
        pin=pin,
        config_maps=frozenset(name for kind, name in children if kind == CONFIG_MAP.name),
    )


def age(live: Object, now: float) -> float:
    """Return seconds since an object was made; `now` in seconds since the epoch."""
    created = live["metadata"].get("creationTimestamp")
    return 0.0 if created is None else now - datetime.datetime.fromisoformat(created).timestamp()


def _record(live: Object | None, owner: Owner) -> Record | None:
    if live is None or not owned(live, owner):
        return None
    notes = live["metadata"].get("annotations", {})
    replicas, progress = (notes.get(key, "") for key in (REPLICAS_ANNOTATION, PROGRESS_ANNOTATION))
    if not (replicas.isdecimal() and progress.isdecimal()):
        return None
    kind, revision = notes.get(KIND_ANNOTATION, ""), notes.get(REVISION_LABEL, "")
    return Record(int(replicas), kind, revision, int(progress))


def owned(live: Object, owner: Owner) -> bool:
    """True if this very service owns an object; another service of its name, now gone, may have
    left one."""
    owners: Iterable[Object] = live["metadata"].get("ownerReferences", ())
    return any(one.get("uid") == owner.uid for one in owners)


def _role(live: Object) -> str:
    return str(live["metadata"].get("labels", {}).get(ROLE_LABEL, ""))


def _numbered(pods: Iterable[Object]) -> dict[int, tuple[Member, ...]]:
    found: dict[int, tuple[Member, ...]] = {}
    for pod in pods:
        labels = pod["metadata"]["labels"]
        if labels.get(WORKER_GROUP, "").isdecimal():
            number = int(labels[WORKER_GROUP])
            member = Member(labels.get(REVISION_LABEL, ""), _is_ready(pod))
            found[number] = (*found.get(number, ()), member)
    return found


def _is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _index(live: Object) -> tuple[str, int]:
    """Return a sort key: the name without its number, then the number."""
    name, _, number = live["metadata"]["name"].rpartition("-")
    return name, int(number) if number.isdecimal() else 0


def _words(metas: Iterable[Object], label: str) -> Iterator[str]:
    return (meta["labels"][label] for meta in metas if label in meta.get("labels", {}))
