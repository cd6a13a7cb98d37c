"""What a pass needs of the world, as three small protocols: a hand, a sight of it, its workers.

`Cluster`, `Watches` and `Fleet` are the real ones; tests bring a small cluster of their own.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from outrider.client.state import State
from outrider.contract.settings import PolicySettings
from outrider.operator.kinds import ObjectKind
from outrider.operator.naming import FIELD_MANAGER
from outrider.operator.observed import Pod
from outrider.operator.worker_client import PodReport

Object = dict[str, Any]
Key = tuple[str, str]
"""Namespace and name of a service."""


class Hand(Protocol):
    """Writes to a cluster; everything raises `ClusterError`."""

    async def get(self, kind: ObjectKind, namespace: str, name: str) -> Object | None:
        """The object as it is now, or None if there is none."""

    async def apply(self, wanted: Mapping[str, Any], manager: str = FIELD_MANAGER) -> Object:
        """Makes the object so; returns it as the server holds it."""

    async def apply_status(self, wanted: Mapping[str, Any]) -> Object:
        """The same for an object's status alone."""

    async def delete(self, kind: ObjectKind, namespace: str, name: str, uid: str) -> None:
        """Deletes this very object; gone is fine."""

    async def event(
        self, about: Mapping[str, Any], *, warning: bool, reason: str, note: str
    ) -> None:
        """Posts an event about an object."""


class Sight(Protocol):
    """What is known of the cluster; it may lag behind what was written."""

    def service(self, key: Key) -> Mapping[str, Any] | None:
        """A service."""

    def children(self, key: Key) -> Iterable[Mapping[str, Any]]:
        """What carries a service's label, of all kinds that a service can own."""

    def pods(self, key: Key) -> Iterable[Mapping[str, Any]]:
        """A service's pods of either role."""


class Workers(Protocol):
    """Speaks to the workers in their pods."""

    async def reports(self, pods: Iterable[Pod]) -> Mapping[str, PodReport]:
        """What each pod that can be spoken to says, by its uid."""

    async def push(self, pod: Pod, policy: PolicySettings) -> State:
        """Gives a target its policy; returns its state then. Raises `ClientError`."""

    async def forget(self, gone: Iterable[str]) -> None:
        """Lets go of the pods with these uids."""
