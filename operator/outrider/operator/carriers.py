"""What keeps the pods of one role running now: one object for all of them, or one a group.

Made from children as the cluster shows them. A role has several kinds only while it changes from
one to the other. Leaves what is to become of them to `arranging`.
"""

import dataclasses
import datetime
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from outrider.contract.settings import Role
from outrider.operator.kinds import (
    DEPLOYMENT,
    LEADER_WORKER_SET,
    NETWORK_SERVICE,
    STATEFUL_SET,
)
from outrider.operator.manifests.child import ChildKey, Owner
from outrider.operator.naming import (
    GROUP_LABEL,
    KIND_ANNOTATION,
    PROGRESS_ANNOTATION,
    REPLICAS_ANNOTATION,
    REVISION_LABEL,
    ROLE_LABEL,
    SERVED_ANNOTATION,
    nodes_name,
    role_name,
)

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Carrier:
    """An object that keeps groups running: a StatefulSet one, the others all of a role's."""

    live: Object

    @property
    def kind(self) -> str:
        """Of the object."""
        return str(self.live["kind"])

    @property
    def name(self) -> str:
        """Of the object."""
        return str(self.live["metadata"]["name"])

    @property
    def revision(self) -> str:
        """Of a StatefulSet's pods, which never change."""
        return str(self.live["metadata"].get("labels", {}).get(REVISION_LABEL, ""))

    @property
    def groups(self) -> int:
        """How many it keeps running."""
        one = self.kind == STATEFUL_SET.name
        return 1 if one else int(self.live["spec"].get("replicas", 1))

    @property
    def ready(self) -> int:
        """How many of them serve: of a StatefulSet's pods all, or none counts."""
        status = self.live.get("status", {})
        pods = int(status.get("readyReplicas", 0))
        if self.kind != STATEFUL_SET.name:
            return min(pods, self.groups)
        return int(pods >= int(self.live["spec"].get("replicas", 1)))

    def fresh(self, kind: str, revision: str) -> bool:
        """Whether it is of this kind, and a StatefulSet of this revision too."""
        return self.kind == kind and (kind != STATEFUL_SET.name or self.revision == revision)

    @property
    def served(self) -> bool:
        """Whether it serves, or a StatefulSet did at some time."""
        return bool(self.ready) or SERVED_ANNOTATION in self.live["metadata"].get("annotations", {})

    def late(self, seconds: float, now: float) -> bool:
        """Whether it has never served in so many seconds; `now` in seconds since the epoch."""
        return bool(self.groups) and not self.served and age(self.live, now) > seconds


@dataclass(frozen=True, slots=True)
class Record:
    """What is wanted of a role whose groups have an object each; kept with their Service."""

    replicas: int
    kind: str
    """Of what keeps them running, or is to."""
    revision: str
    """Of their pods."""
    progress: int
    """Seconds in which a new group is to get ready."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One role's."""

    carriers: tuple[Carrier, ...] = ()
    record: Record | None = None
    taken: frozenset[str] = frozenset()
    """Names of groups whose pods are all on their way out, or whose object is."""
    known: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Revisions of the groups whose pods are there and stay, by name: of one whose object is not
    seen, somebody may have taken the labels away."""
    revisions: frozenset[str] = frozenset()
    """Of all pods that are there, those on their way out included."""

    def of(self, kind: str) -> tuple[Carrier, ...]:
        """The carriers of a kind."""
        return tuple(one for one in self.carriers if one.kind == kind)


def standing(
    children: Mapping[ChildKey, Object], pods: Iterable[Object], owner: Owner, role: Role
) -> Standing:
    """What there is of a role; `pods` are the service's, as the cluster shows them."""
    mine = [child for child in children.values() if owned(child, owner)]
    sets = [one for one in mine if one["kind"] == STATEFUL_SET.name and _role(one) == role]
    single = {(kind.name, role_name(owner.name, role)) for kind in (DEPLOYMENT, LEADER_WORKER_SET)}
    whole = [one for one in mine if (one["kind"], one["metadata"]["name"]) in single]
    metas = [pod["metadata"] for pod in pods if _role(pod) == role]
    leaving = [meta for meta in metas if "deletionTimestamp" in meta]
    here = [meta["labels"] for meta in metas if "deletionTimestamp" not in meta]
    known = {
        labels[GROUP_LABEL]: labels.get(REVISION_LABEL, "")
        for labels in here
        if GROUP_LABEL in labels
    }
    going = [one["metadata"]["name"] for one in sets if "deletionTimestamp" in one["metadata"]]
    stay = [one for one in sets if "deletionTimestamp" not in one["metadata"]]
    return Standing(
        carriers=tuple(Carrier(one) for one in (*whole, *sorted(stay, key=_index))),
        record=_record(children.get((NETWORK_SERVICE.name, nodes_name(owner.name, role))), owner),
        taken=frozenset((*going, *(set(_words(leaving, GROUP_LABEL)) - known.keys()))),
        known=known,
        revisions=frozenset(_words(metas, REVISION_LABEL)),
    )


def age(live: Object, now: float) -> float:
    """Seconds since an object was made; `now` in seconds since the epoch."""
    made = live["metadata"].get("creationTimestamp")
    return 0.0 if made is None else now - datetime.datetime.fromisoformat(made).timestamp()


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
    """Whether an object is this very service's: one of its name may be left of another of its
    name, which is gone."""
    owners: Iterable[Object] = live["metadata"].get("ownerReferences", ())
    return any(one.get("uid") == owner.uid for one in owners)


def _role(live: Object) -> str:
    return str(live["metadata"].get("labels", {}).get(ROLE_LABEL, ""))


def _index(live: Object) -> tuple[str, int]:
    """Name without its number, and that number: the tenth comes after the ninth."""
    name, _, number = live["metadata"]["name"].rpartition("-")
    return name, int(number) if number.isdecimal() else 0


def _words(metas: Iterable[Object], label: str) -> Iterator[str]:
    return (meta["labels"][label] for meta in metas if label in meta.get("labels", {}))
