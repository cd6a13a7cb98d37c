"""Protocols of the cluster that a pass reads and writes.

`Watches`, `Cluster` and `Claims` implement them; tests bring a small cluster of their own.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from outrider.operator.cluster.claims import Claim
from outrider.operator.cluster.kinds import ObjectKind, ServiceKey
from outrider.operator.naming import FIELD_MANAGER

Object = dict[str, Any]


class ClusterWriter(Protocol):
    """Writes to a cluster; every method raises `ClusterError`."""

    async def get(self, kind: ObjectKind, namespace: str, name: str) -> Object | None:
        """Return the object as it is now, or None if there is none."""

    async def apply(self, wanted: Mapping[str, Any], manager: str = FIELD_MANAGER) -> Object:
        """Apply the object; return it as the server holds it."""

    async def dry_run(self, wanted: Mapping[str, Any]) -> None:
        """Ask whether an apply would be taken; store nothing."""

    async def warnings(self, wanted: Mapping[str, Any]) -> list[str]:
        """Return what an apply of an object's status alone would be warned of; store nothing."""

    async def apply_status(self, wanted: Mapping[str, Any]) -> Object:
        """Apply an object's status alone."""

    async def delete(self, kind: ObjectKind, namespace: str, name: str, uid: str) -> None:
        """Delete this very object; one that is gone is no error."""

    async def event(
        self, about: Mapping[str, Any], *, warning: bool, reason: str, note: str
    ) -> None:
        """Post an event about an object."""


class ClusterReader(Protocol):
    """Reads the watch caches; they may lag behind what was written."""

    def service(self, key: ServiceKey) -> Mapping[str, Any] | None:
        """Return a service, or None if it is not known."""

    def children(self, key: ServiceKey) -> Iterable[Mapping[str, Any]]:
        """Yield what carries a service's label, of all kinds that are watched."""

    def pods(self, key: ServiceKey) -> Iterable[Mapping[str, Any]]:
        """Yield a service's pods of either role."""


class ClaimReader(Protocol):
    """Who looks after a namespace."""

    holder: str
    """Name of this operator."""

    async def claim(self, namespace: str) -> Claim:
        """Return who looks after a namespace; raises `ClusterError`."""
