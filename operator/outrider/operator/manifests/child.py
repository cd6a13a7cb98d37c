"""What all children of a service have in common: names, labels, owner and digest."""

from dataclasses import dataclass
from typing import Any

from outrider.operator.differences import digest
from outrider.operator.kinds import SERVICE, ObjectKind
from outrider.operator.naming import DIGEST_ANNOTATION, labels

Object = dict[str, Any]
ChildKey = tuple[str, str]
"""Kind and name: by what children of a service are told apart."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The service that owns the children."""

    namespace: str
    name: str
    uid: str

    @property
    def reference(self) -> Object:
        """As children name it; the cluster deletes them with it."""
        return {
            "apiVersion": SERVICE.api_version,
            "kind": SERVICE.name,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }


def child(kind: ObjectKind, owner: Owner, name: str, role: str = "", **content: Any) -> Object:
    """An object that `owner` owns; `content` are its top-level fields besides `metadata`."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": {
            "name": name,
            "namespace": owner.namespace,
            "labels": labels(owner.name, role),
            "annotations": {DIGEST_ANNOTATION: digest(content)},
            "ownerReferences": [owner.reference],
        },
        **content,
    }
