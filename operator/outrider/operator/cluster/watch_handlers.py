"""kopf's handlers: watches, the caches that they fill, and an entry in the queue for each change.

Handlers only cache and enqueue; they never write, so kopf adds neither finalizers nor annotations,
and deleting a service waits for no handler: the cluster deletes what it owns.
"""

import asyncio
import dataclasses
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import kopf

from outrider.operator.cluster.kinds import (
    CHILDREN,
    DEPLOYMENT,
    GUARDED,
    ISSUED,
    LEADER_WORKER_SET,
    LEASE,
    OPTIONAL,
    POD,
    SERVICE,
    ObjectKind,
    ServiceKey,
)
from outrider.operator.naming import ROLE_LABEL, SELECTOR, SERVICE_LABEL

Object = Mapping[str, Any]
READ = (SERVICE, POD, *CHILDREN)
"""Kinds that passes read in every cluster."""
BACKOFFS = (1, 1, 2, 3, 5, 8)
"""Seconds between a watch's attempts before it ends, and the process with it: together longer than
a Lease lives without an API server."""
WITH_MANAGED_FIELDS = (DEPLOYMENT.name, LEADER_WORKER_SET.name)
"""Kinds whose `managedFields` are read for more than the managers' names."""


class Watches:
    """Watch caches of services and what belongs to them."""

    def __init__(
        self, enqueue: Callable[[ServiceKey], None], optional: Iterable[ObjectKind] = ()
    ) -> None:
        """`optional` are the kinds that not every cluster serves and this one does; those that are
        read by name are left out."""
        self._enqueue = enqueue
        self._optional = tuple(kind for kind in optional if kind not in GUARDED)
        self._indices: Mapping[str, Any] = {}
        self.last_event = time.monotonic()
        """Time of the last event of any watch."""
        self.began = asyncio.Event()
        """Set once all kinds have been listed: kopf calls no handler before all indices are full,
        and the leader's own Lease is there to be told of."""

    def register(self, registry: kopf.OperatorRegistry) -> None:
        """Add the handlers; call it before kopf starts."""
        for kind in self.watched:
            self._register(kind, registry)
        kopf.on.startup(registry=registry, id="indices")(self._start)
        kopf.on.login(registry=registry, id="login")(_login)

    @property
    def listed(self) -> tuple[ObjectKind, ...]:
        """Kinds that passes read."""
        return (*READ, *self._optional)

    @property
    def watched(self) -> tuple[ObjectKind, ...]:
        """All kinds that are watched. The leader's Lease is watched for its changes alone: they
        show that the watches work."""
        return (*self.listed, LEASE)

    def service(self, key: ServiceKey) -> Object | None:
        """Return a service from the cache."""
        return next(iter(self._of(SERVICE, key)), None)

    def children(self, key: ServiceKey) -> list[Object]:
        """Return what carries a service's label, of all kinds that are watched."""
        return [child for kind in (*CHILDREN, *self._optional) for child in self._of(kind, key)]

    def pods(self, key: ServiceKey) -> list[Object]:
        """Return a service's pods of either role."""
        return [pod for pod in self._of(POD, key) if ROLE_LABEL in pod["metadata"]["labels"]]

    def woken(self, kind: ObjectKind, body: Object) -> list[ServiceKey]:
        """Return the services that a change of an object is news for: its own and, of a draft's
        pod, those whose targets link to it."""
        key = owner_of(kind, body)
        if key is None:
            return []
        if kind is not POD or body["metadata"]["labels"].get(ROLE_LABEL) != "draft":
            return [key]
        every = self._indices.get(SERVICE.plural, {})
        there = [one for one in list(every) if one[0] == key[0]]
        return [key, *(one for one in there if any(drafts_of(raw) == key[1] for raw in every[one]))]

    def services(self) -> list[ServiceKey]:
        """Return all services."""
        return list(self._indices.get(SERVICE.plural, ()))

    def versions(self, kind: ObjectKind) -> dict[str, str]:
        """Return the resource version of each object of a kind, by uid."""
        index = self._indices.get(kind.plural, {})
        every = (body["metadata"] for key in list(index) for body in index[key])
        return {meta["uid"]: meta["resourceVersion"] for meta in every}

    def _of(self, kind: ObjectKind, key: ServiceKey) -> Iterable[Object]:
        index = self._indices.get(kind.plural, {})
        return list(index[key]) if key in index else ()

    async def _start(self, **kwargs: Any) -> None:
        self._indices = {kind.plural: kwargs[kind.plural] for kind in self.watched}

    def _register(self, kind: ObjectKind, registry: kopf.OperatorRegistry) -> None:
        async def remember(body: kopf.Body, **_: Any) -> dict[ServiceKey, Object] | None:
            key = owner_of(kind, body)
            return None if key is None else {key: trim(kind, body)}

        async def enqueue(body: kopf.Body, **_: Any) -> None:
            self.last_event = time.monotonic()
            if kind is LEASE:
                self.began.set()
            for key in self.woken(kind, body):
                self._enqueue(key)

        where = (kind.group, kind.version, kind.plural)
        kopf.index(*where, registry=registry, id=kind.plural)(remember)
        kopf.on.event(*where, registry=registry, id=f"wake-{kind.plural}")(enqueue)


def _login(**kwargs: Any) -> kopf.ConnectionInfo | None:
    """Connect as `client` does: with the pod's own account, else with the user's kubeconfig."""
    found = kopf.login_with_service_account(**kwargs)
    return _by_address(found) if found else kopf.login_with_kubeconfig(**kwargs)


def _by_address(found: kopf.ConnectionInfo) -> kopf.ConnectionInfo:
    """Replace the API server's name, which needs DNS, by the address that every pod has in its
    environment."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    address = f"[{host}]" if ":" in host else host
    return dataclasses.replace(found, server=f"https://{address}:{port}")


def owner_of(kind: ObjectKind, body: Object) -> ServiceKey | None:
    """Return the service that an object is or belongs to; None: there is none."""
    meta = body["metadata"]
    if kind is SERVICE:
        return meta["namespace"], meta["name"]
    name = meta.get("labels", {}).get(SERVICE_LABEL)
    return None if name is None else (meta["namespace"], name)


def drafts_of(service: Object) -> str | None:
    """Return the service whose drafts a service's targets link to; None: its own, or none."""
    name = service.get("spec", {}).get("draftsOf")
    return name if isinstance(name, str) else None


def trim(kind: ObjectKind, body: Object) -> Object:
    """Return the object without its large unread parts."""
    meta = dict(body["metadata"])
    if kind.name not in WITH_MANAGED_FIELDS:
        managers = [{"manager": one.get("manager")} for one in meta.pop("managedFields", ())]
        if not meta.get("ownerReferences"):  # by them an orphan is known
            meta["managedFields"] = managers
    content = {key: value for key, value in body.items() if key != "metadata"}
    if kind is POD:
        content.pop("spec", None)
    return {"apiVersion": kind.api_version, "kind": kind.name, **content, "metadata": meta}


class NoDiffStorage(kopf.DiffBaseStorage):
    """Turns off kopf's diffs, which no handler here uses: they copied the object of every event and
    took a fifth of the operator's processor time while services were made."""

    def build(self, **_: Any) -> Any:
        return {}

    def fetch(self, **_: Any) -> Any:
        return {}

    def store(self, **_: Any) -> None:
        """Store nothing: objects are not written."""


def settings(lease: str) -> kopf.OperatorSettings:
    """Return kopf's settings: every wait is bounded, nothing is written to objects.

    `lease` is the name of the only Lease that is watched.
    """
    kopf_settings = kopf.OperatorSettings()
    kopf_settings.watching.server_timeout = 300
    kopf_settings.watching.client_timeout = 310
    kopf_settings.watching.connect_timeout = 30
    kopf_settings.watching.reconnect_backoff = 1.0
    kopf_settings.networking.request_timeout = 30
    kopf_settings.networking.error_backoffs = BACKOFFS
    kopf_settings.networking.connect_timeout = 10
    kopf_settings.persistence.diffbase_storage = NoDiffStorage()
    kopf_settings.posting.enabled = False
    kopf_settings.scanning.disabled = True
    kopf_settings.peering.standalone = True
    kopf_settings.process.ultimate_exiting_timeout = 30
    for kind in (*CHILDREN, *OPTIONAL, *ISSUED, POD):
        kopf_settings.watching.label_selectors[kind.plural] = SELECTOR
    kopf_settings.watching.field_selectors[LEASE.plural] = f"metadata.name={lease}"
    return kopf_settings
