"""Gate of passes: only services of namespaces that this operator looks after come through.

Leaves the claims themselves to `claims`.
"""

import logging
from collections.abc import Mapping
from typing import Any

from outrider.operator.cluster.claims import Claim
from outrider.operator.cluster.client import ClusterError
from outrider.operator.cluster.interfaces import ClaimReader, ClusterWriter
from outrider.operator.cluster.kinds import ServiceKey
from outrider.operator.work_queue import Retry

log = logging.getLogger(__name__)
CLAIMED = "NamespaceClaimed"
"""Reason of the event of an operator that leaves a service to another one."""


class ClaimGate:
    """Says who looks after services, and tells each that is left to another operator once."""

    def __init__(self, claims: ClaimReader | None, writer: ClusterWriter) -> None:
        """`claims` None: there is no other operator."""
        self._claims = claims
        self._writer = writer
        self._refused: dict[ServiceKey, str] = {}

    async def claim(self, key: ServiceKey) -> Claim:
        """Return who looks after a service; raises `Retry` where nobody knows."""
        if self._claims is None:
            return Claim("", is_ours=True)
        try:
            found = await self._claims.claim(key[0])
        except ClusterError as error:
            raise Retry(f"nobody knows who manages the namespace: {error}") from None
        if found.is_ours:
            self.forget(key)
        return found

    async def refuse(self, key: ServiceKey, raw: Mapping[str, Any], holder: str) -> None:
        """Say once that another operator looks after a service; its status is that one's."""
        if self._claims is None or self._refused.get(key) == holder:
            return
        self._refused[key] = holder
        us, namespace = self._claims.holder, key[0]
        words = f"the operator {holder} manages {namespace}, {us} does not"
        log.error("%s/%s is left alone: %s", *key, words)
        try:
            await self._writer.event(raw, warning=True, reason=CLAIMED, note=words)
        except ClusterError as error:
            log.warning("%s: %s", key, error)

    def forget(self, key: ServiceKey) -> None:
        """Drop what was said of a service that is gone, or ours."""
        self._refused.pop(key, None)
