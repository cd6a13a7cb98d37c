"""kopf's part: watches, the caches that they fill, and wakes for every change.

Handlers only remember and wake; they never write, so kopf adds neither finalizers nor annotations.
Deleting a service therefore waits for nobody: the cluster deletes what it owns.
"""

import dataclasses
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import kopf

from outrider.operator.interfaces import Key
from outrider.operator.kinds import (
    CHILDREN,
    DEPLOYMENT,
    LEADER_WORKER_SET,
    LEASE,
    OPTIONAL,
    POD,
    SERVICE,
    ObjectKind,
)
from outrider.operator.naming import ROLE_LABEL, SELECTOR, SERVICE_LABEL

Object = Mapping[str, Any]
READ = (SERVICE, POD, *CHILDREN)
"""Kinds that passes read in every cluster."""
BACKOFFS = (1, 1, 2, 3, 5, 8)
"""Seconds between a watch's attempts before it ends, and the process with it: together longer than
a Lease lives without an API server."""
COUNTED = (DEPLOYMENT.name, LEADER_WORKER_SET.name)
"""Kinds of whose fields it matters who set them."""


class Watches:
    """Everything that the API server has told of services and what belongs to them."""

    def __init__(self, wake: Callable[[Key], None], optional: Iterable[ObjectKind] = ()) -> None:
        """`optional` are the kinds that not every cluster serves and this one does."""
        self._wake = wake
        self._optional = tuple(optional)
        self._indices: Mapping[str, Any] = {}
        self.last_event = time.monotonic()
        """When anything was heard at all."""

    def register(self, registry: kopf.OperatorRegistry) -> None:
        """Adds the handlers; call it before kopf starts."""
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
        """All kinds that there is a watch of. The leader's Lease is watched for its changes alone:
        they show that watches live."""
        return (*self.listed, LEASE)

    def service(self, key: Key) -> Object | None:
        """A service as it was last heard of."""
        return next(iter(self._of(SERVICE, key)), None)

    def children(self, key: Key) -> list[Object]:
        """What carries a service's label, of all kinds that a service can own."""
        return [child for kind in (*CHILDREN, *self._optional) for child in self._of(kind, key)]

    def pods(self, key: Key) -> list[Object]:
        """A service's pods of either role."""
        return [pod for pod in self._of(POD, key) if ROLE_LABEL in pod["metadata"]["labels"]]

    def versions(self, kind: ObjectKind) -> dict[str, str]:
        """The resource version of each object of a kind, by uid."""
        index = self._indices.get(kind.plural, {})
        every = (body["metadata"] for key in list(index) for body in index[key])
        return {meta["uid"]: meta["resourceVersion"] for meta in every}

    def _of(self, kind: ObjectKind, key: Key) -> Iterable[Object]:
        index = self._indices.get(kind.plural, {})
        return list(index[key]) if key in index else ()

    async def _start(self, **kwargs: Any) -> None:
        self._indices = {kind.plural: kwargs[kind.plural] for kind in self.watched}

    def _register(self, kind: ObjectKind, registry: kopf.OperatorRegistry) -> None:
        async def remember(body: kopf.Body, **_: Any) -> dict[Key, Object] | None:
            key = owner_of(kind, body)
            return None if key is None else {key: trimmed(kind, body)}

        async def wake(body: kopf.Body, **_: Any) -> None:
            self.last_event = time.monotonic()
            key = owner_of(kind, body)
            if key is not None:
                self._wake(key)

        where = (kind.group, kind.version, kind.plural)
        kopf.index(*where, registry=registry, id=kind.plural)(remember)
        kopf.on.event(*where, registry=registry, id=f"wake-{kind.plural}")(wake)


def _login(**kwargs: Any) -> kopf.ConnectionInfo | None:
    """As `cluster` does: the pod's own account, else the user's kubeconfig."""
    found = kopf.login_with_service_account(**kwargs)
    return _by_address(found) if found else kopf.login_with_kubeconfig(**kwargs)


def _by_address(found: kopf.ConnectionInfo) -> kopf.ConnectionInfo:
    """kopf goes by the API server's name; the address that every pod is told needs no DNS."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    address = f"[{host}]" if ":" in host else host
    return dataclasses.replace(found, server=f"https://{address}:{port}")


def owner_of(kind: ObjectKind, body: Object) -> Key | None:
    """The service that an object is or belongs to; None: to none of ours."""
    meta = body["metadata"]
    if kind is SERVICE:
        return meta["namespace"], meta["name"]
    name = meta.get("labels", {}).get(SERVICE_LABEL)
    return None if name is None else (meta["namespace"], name)


def trimmed(kind: ObjectKind, body: Object) -> Object:
    """The object without what nobody here reads and that takes most of its room."""
    meta = dict(body["metadata"])
    if kind.name not in COUNTED:
        meta.pop("managedFields", None)
    content = {key: value for key, value in body.items() if key != "metadata"}
    if kind is POD:
        content.pop("spec", None)
    return {"apiVersion": kind.api_version, "kind": kind.name, **content, "metadata": meta}


class Unchanging(kopf.DiffBaseStorage):
    """kopf's view of what has changed, which no handler here asks for: making it copied every
    object that was heard of, a fifth of the operator's processor time while services are made."""

    def build(self, **_: Any) -> Any:
        """The same of all objects."""
        return {}

    def fetch(self, **_: Any) -> Any:
        """The same at all times."""
        return {}

    def store(self, **_: Any) -> None:
        """Nothing is written to objects."""


def settings(lease: str) -> kopf.OperatorSettings:
    """kopf's settings: every wait is bounded, nothing is written to objects.

    `lease` is the name of the only Lease that is watched.
    """
    chosen = kopf.OperatorSettings()
    chosen.watching.server_timeout = 300
    chosen.watching.client_timeout = 310
    chosen.watching.connect_timeout = 30
    chosen.watching.reconnect_backoff = 1.0
    chosen.networking.request_timeout = 30
    chosen.networking.error_backoffs = BACKOFFS
    chosen.networking.connect_timeout = 10
    chosen.persistence.diffbase_storage = Unchanging()
    chosen.posting.enabled = False
    chosen.scanning.disabled = True
    chosen.peering.standalone = True
    chosen.process.ultimate_exiting_timeout = 30
    for kind in (*CHILDREN, *OPTIONAL, POD):
        chosen.watching.label_selectors[kind.plural] = SELECTOR
    chosen.watching.field_selectors[LEASE.plural] = f"metadata.name={lease}"
    return chosen
