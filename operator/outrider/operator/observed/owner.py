"""The service that owns the objects that the operator makes for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from outrider.operator.cluster.kinds import SERVICE


@dataclass(frozen=True, slots=True)
class Owner:
    """The service that owns the children."""

    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, service: Mapping[str, Any]) -> Self:
        """Return a service as the owner of its children."""
        meta = service["metadata"]
        return cls(meta["namespace"], meta["name"], meta["uid"])

    @property
    def reference(self) -> dict[str, Any]:
        """Owner reference of the children, which the cluster deletes with the service."""
        return {
            "apiVersion": SERVICE.api_version,
            "kind": SERVICE.name,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
