"""A cluster in memory, for tests of the operator: server-side apply as far as its builders need it.

Fields are merged by who owns them, defaults are added, quantities are written the server's way, and
lists are owned whole (a real server merges some member by member). What is seen of it lags until
`tell`. Controllers are `small_controllers`' to play.
"""

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from outrider.operator.cluster.client import ClusterError
from outrider.operator.cluster.interfaces import Object
from outrider.operator.cluster.kinds import ObjectKind, ServiceKey
from outrider.operator.naming import FIELD_MANAGER, MANAGED_BY, SERVICE_LABEL
from tests.unit.operator.small_defaults import completed

Path = tuple[str, ...]
ObjectKey = tuple[str, str, str]
"""Kind, namespace and name."""
OWN = (("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "namespace"))
"""Kinds without an owner."""


@dataclasses.dataclass(slots=True)
class Stored:
    """One object, and which manager owns which of its fields."""

    body: Object
    owners: dict[str, set[Path]]


class SmallCluster:
    """The API server, the watches on it, and what was asked of it."""

    def __init__(self) -> None:
        self.stored: dict[ObjectKey, Stored] = {}
        self.events: list[tuple[str, str]] = []
        """Reason and note of each."""
        self.writes: list[str] = []
        """Verb, kind and name of each write, in order."""
        self.dry_runs: list[str] = []
        """Names of the objects that were tried and would be taken."""
        self.refuse: Callable[[str, str], ClusterError | None] = lambda verb, kind: None
        """What is answered to a verb on a kind instead of doing it."""
        self.warned: list[str] = []
        """What writers of a status are warned of."""
        self.questions = 0
        """How often that was asked."""
        self._count = 0
        self._told: dict[ObjectKey, Object] = {}

    # The hand.

    async def get(self, kind: ObjectKind, namespace: str, name: str) -> Object | None:
        self._check("get", kind.name)
        found = self.stored.get((kind.name, namespace, name))
        return None if found is None else copied(found.body)

    async def apply(self, wanted: Mapping[str, Any], manager: str = FIELD_MANAGER) -> Object:
        self._wrote("apply", wanted)
        key = object_key(wanted)
        stored = self.stored.get(key) or self._new(key, wanted)
        body = {k: v for k, v in copied(wanted).items() if k != "status"}
        self._merge(stored, body, manager)
        return copied(stored.body)

    async def dry_run(self, wanted: Mapping[str, Any]) -> None:
        self._check("dry run", wanted["kind"])
        self.dry_runs.append(wanted["metadata"]["name"])

    async def warnings(self, wanted: Mapping[str, Any]) -> list[str]:
        self._check("warnings", wanted["kind"])
        self.questions += 1
        return list(self.warned)

    async def apply_status(self, wanted: Mapping[str, Any]) -> Object:
        self._wrote("status", wanted)
        stored = self.stored[object_key(wanted)]
        self.put_status(stored.body, copied(wanted["status"]))
        return copied(stored.body)

    async def delete(self, kind: ObjectKind, namespace: str, name: str, uid: str) -> None:
        self._wrote("delete", {"kind": kind.name, "metadata": {"name": name}})
        found = self.stored.get((kind.name, namespace, name))
        if found is not None and found.body["metadata"]["uid"] == uid:
            del self.stored[kind.name, namespace, name]

    async def event(
        self, about: Mapping[str, Any], *, warning: bool, reason: str, note: str
    ) -> None:
        self._check("event", about["kind"])
        self.events.append((reason, note))

    # The sight.

    def tell(self) -> None:
        """The watches catch up."""
        self._told = {key: copied(found.body) for key, found in self.stored.items()}

    def service(self, key: ServiceKey) -> Object | None:
        return self._told.get(("SpeculativeService", *key))

    def children(self, key: ServiceKey) -> list[Object]:
        return [one for one in self._labelled(key) if one["kind"] not in ("Pod", "Secret")]

    def pods(self, key: ServiceKey) -> list[Object]:
        return [one for one in self._labelled(key) if one["kind"] == "Pod"]

    # Others.

    def edit(self, key: ObjectKey, change: Callable[[Object], None], manager: str = "you") -> None:
        """Edit an existing object, as another client."""
        stored = self.stored[key]
        before, spec = dict(leaves(stored.body)), copied(stored.body.get("spec"))
        change(stored.body)
        after = dict(leaves(stored.body))
        touched = {path for path in after if before.get(path) != after[path]}
        for owned in stored.owners.values():
            owned -= touched | (before.keys() - after.keys())
        stored.owners.setdefault(manager, set()).update(touched)
        self._finish(stored, spec_changed=stored.body.get("spec") != spec)

    def put(self, body: Object, manager: str = "you") -> Object:
        """Create an object, as another client."""
        stored = self._new(object_key(body), body)
        self._merge(stored, copied(body), manager)
        return stored.body

    def put_status(self, body: Object, status: Any) -> None:
        """Write an object's status, as its controller does."""
        if body.get("status") != status:
            body["status"] = status
            self._version(body)

    def remove(self, key: ObjectKey) -> None:
        """Delete an object, as another client."""
        del self.stored[key]

    def of(self, kind: str) -> list[Object]:
        """All objects of a kind, by name."""
        found = [s.body for (of, _, _), s in self.stored.items() if of == kind]
        return sorted(found, key=lambda body: str(body["metadata"]["name"]))

    def _labelled(self, key: ServiceKey) -> Iterator[Object]:
        for (_, namespace, _), one in sorted(self._told.items()):
            labels = one["metadata"].get("labels", {})
            shown = labels.get(MANAGED_BY) == FIELD_MANAGER and namespace == key[0]
            if shown and labels.get(SERVICE_LABEL) == key[1]:
                yield one

    def _wrote(self, verb: str, wanted: Mapping[str, Any]) -> None:
        self._check(verb, wanted["kind"])
        self.writes.append(f"{verb} {wanted['kind']} {wanted['metadata']['name']}")

    def _check(self, verb: str, kind: str) -> None:
        refusal = self.refuse(verb, kind)
        if refusal is not None:
            raise refusal

    def _new(self, key: ObjectKey, wanted: Mapping[str, Any]) -> Stored:
        self._count += 1
        meta = {"name": key[2], "namespace": key[1], "uid": f"uid-{self._count}", "generation": 0}
        body: Object = {"apiVersion": wanted["apiVersion"], "kind": key[0], "metadata": meta}
        self.stored[key] = Stored(body, {})
        return self.stored[key]

    def _merge(self, stored: Stored, body: Object, manager: str) -> None:
        before = copied(stored.body)
        wanted = {path: value for path, value in leaves(body) if path not in OWN}
        dropped = stored.owners.get(manager, set()) - wanted.keys()
        stored.owners[manager] = set(wanted)
        others = {name: owned for name, owned in stored.owners.items() if name != manager}
        for path in dropped - set().union(*others.values()):
            _unset(stored.body, path)
        for path, value in wanted.items():
            if _get(stored.body, path) != value:
                for owned in others.values():
                    owned.discard(path)
            _set(stored.body, path, value)
        self._finish(stored, _spec(before) != _spec(completed(copied(stored.body))), before)

    def _finish(self, stored: Stored, spec_changed: bool, before: Object | None = None) -> None:
        body = completed(stored.body)
        replicas = {"fieldsV1": {"f:spec": {"f:replicas": {}}}}
        body["metadata"]["managedFields"] = [
            {"manager": manager, **(replicas if ("spec", "replicas") in owned else {})}
            for manager, owned in sorted(stored.owners.items())
        ]
        if spec_changed:
            body["metadata"]["generation"] += 1
        if body != before:
            self._version(body)

    def _version(self, body: Object) -> None:
        self._count += 1
        body["metadata"]["resourceVersion"] = str(self._count)


def copied(value: Any) -> Any:
    """Return a copy of JSON; `copy.deepcopy` takes five times as long, for cycles and aliases."""
    if isinstance(value, Mapping):
        return {key: copied(below) for key, below in value.items()}
    return [copied(below) for below in value] if isinstance(value, list) else value


def object_key(body: Mapping[str, Any]) -> ObjectKey:
    """Return the key under which an object is stored."""
    return body["kind"], body["metadata"]["namespace"], body["metadata"]["name"]


def leaves(value: Mapping[str, Any], above: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every field of an object with its value; lists and empty mappings are fields."""
    for key, below in value.items():
        if isinstance(below, Mapping) and below:
            yield from leaves(below, (*above, key))
        else:
            yield (*above, key), copied(below)


def _spec(body: Object) -> str:
    rest = {k: v for k, v in body.items() if k not in ("metadata", "status")}
    return json.dumps(rest, sort_keys=True)


def _get(body: Any, path: Path) -> Any:
    for key in path:
        body = body.get(key) if isinstance(body, dict) else None
    return body


def _set(body: Object, path: Path, value: Any) -> None:
    for key in path[:-1]:
        inner = body.get(key)
        if not isinstance(inner, dict):
            inner = body[key] = {}
        body = inner
    body[path[-1]] = value


def _unset(body: Object, path: Path) -> None:
    inner = _get(body, path[:-1])
    if isinstance(inner, dict):
        inner.pop(path[-1], None)
        if not inner and len(path) > 1:
            _unset(body, path[:-1])
