"""Protocols of a pass: it reads a cluster, writes to it and asks its workers, or
a Prometheus about them.

`Watches`, `Cluster` and `WorkerClients` implement them; tests bring a small cluster of their own.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from outrider.client.state import State
from outrider.contract.settings import PolicySettings
from outrider.operator.cluster.kinds import ObjectKind, ServiceKey
from outrider.operator.control.prometheus import Answer
from outrider.operator.naming import FIELD_MANAGER
from outrider.operator.pods import Pod
from outrider.operator.workers.client import PodReport
from outrider.operator.workers.prometheus_client import PodsQuery

Object = dict[str, Any]


class ClusterWriter(Protocol):
    """Writes to a cluster; every method raises `ClusterError`."""

    async def get(self, kind: ObjectKind, namespace: str, name: str) -> Object | None:
        """Return the object as it is now, or None if there is none."""

    async def apply(self, wanted: Mapping[str, Any], manager: str = FIELD_MANAGER) -> Object:
        """Apply the object; return it as the server holds it."""

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
        """Yield what carries a service's label, of all kinds that a service can own."""

    def pods(self, key: ServiceKey) -> Iterable[Mapping[str, Any]]:
        """Yield a service's pods of either role."""


class Workers(Protocol):
    """Connections to the workers in their pods."""

    async def reports(self, pods: Iterable[Pod], metrics: bool) -> Mapping[str, PodReport]:
        """Return the report of each pod that can be reached, by its uid; with its `metrics` if
        they are asked for."""

    async def answer(self, service: ServiceKey, question: PodsQuery | None) -> Answer | None:
        """Return what a Prometheus knows of a service's pods, if an answer has come; `question` is
        asked unless a query of the service runs."""

    async def push(self, pod: Pod, policy: PolicySettings) -> State:
        """Set a target's policy; return its state afterwards. Raises `ClientError`."""

    async def forget(self, gone: Iterable[str]) -> None:
        """Close the connections to the pods with these uids."""

    async def forget_service(self, service: ServiceKey) -> None:
        """End what is asked about a service that is gone."""
