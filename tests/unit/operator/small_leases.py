"""A cluster that holds claims of namespaces."""

from collections.abc import Callable, Mapping
from typing import Any

from outrider.operator.cluster.claims import Claims
from outrider.operator.cluster.client import ClusterError
from outrider.operator.naming import CLAIM_NAME


class SmallLeases:
    """A cluster that holds one Lease a namespace, and a clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.stored: dict[str, dict[str, Any]] = {}
        self.writes = 0
        self.before_write: Callable[[], None] = lambda: None
        self.down = False

    async def get(self, kind: Any, namespace: str, name: str) -> dict[str, Any] | None:
        assert name == CLAIM_NAME
        if self.down:
            raise ClusterError("get", 0, "no answer")
        return self.stored.get(namespace)

    async def create(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        self.before_write()
        if wanted["metadata"]["namespace"] in self.stored:
            raise ClusterError("post", 409, "there is one")
        return self._write(wanted)

    async def replace(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        self.before_write()
        meta = wanted["metadata"]
        if meta["resourceVersion"] != self.version(meta["namespace"]):
            raise ClusterError("put", 409, "it was written meanwhile")
        return self._write(wanted)

    def version(self, namespace: str) -> str:
        return str(self.stored[namespace]["metadata"]["resourceVersion"])

    def touch(self, namespace: str) -> None:
        """Somebody else writes it, once."""
        self.before_write = lambda: None
        self._write(self.stored[namespace])

    def _write(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        self.writes += 1
        meta = {**wanted["metadata"], "resourceVersion": str(self.writes)}
        self.stored[meta["namespace"]] = {**wanted, "metadata": meta}
        return self.stored[meta["namespace"]]

    def operator(self, name: str) -> Claims:
        return Claims(self, name, lambda: self.now)  # type: ignore[arg-type] # a fake
