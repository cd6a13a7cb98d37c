"""The service that owns the objects that the operator makes for it."""

from dataclasses import dataclass
from typing import Any

from outrider.operator.cluster.kinds import SERVICE


@dataclass(frozen=True, slots=True)
class Owner:
    """The service that owns the children."""

    namespace: str
    name: str
    uid: str

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
