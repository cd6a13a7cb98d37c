"""The Secrets with the certificates of one service's pods, read by their names.

Nobody lists or watches Secrets, for that takes the right to see everybody's. Leaves what they hold
to `manifests`.
"""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from outrider.contract.settings import Role
from outrider.operator.cluster.client import ClusterError
from outrider.operator.cluster.interfaces import ClusterWriter
from outrider.operator.cluster.kinds import SECRET, ServiceKey
from outrider.operator.naming import FIELD_MANAGER, MANAGED_BY, certificate_name

Object = Mapping[str, Any]
AGAIN_SECONDS = 600.0
"""Seconds between two reads, as between the full reads of what is watched."""
WAITING_SECONDS = 15.0
"""Seconds between two reads while no container of a pod has begun: it may wait for a Secret that
was deleted."""


class CertificateSecrets:
    """The Secrets of one service, as they were last read."""

    def __init__(self, writer: ClusterWriter, key: ServiceKey, clock: Callable[[], float]) -> None:
        """`clock` gives seconds."""
        self._writer, self._key, self._clock = writer, key, clock
        self._read_at = -math.inf
        self.lives: Sequence[Object] = ()

    async def read(self, seconds: float) -> None:
        """Read them if the last time is longer ago; raises `ClusterError` if a retry may
        succeed."""
        now = self._clock()
        if 0 <= now - self._read_at < seconds:
            return
        names = (certificate_name(self._key[1], role) for role in Role)
        found = await asyncio.gather(*map(self._get, names))
        self.lives = [live for live in found if live is not None]
        self._read_at = now

    async def _get(self, name: str) -> Object | None:
        """Return one with the operator's labels; whoever else has its name is found when it is
        applied, and so is a permission that is missing."""
        try:
            live = await self._writer.get(SECRET, self._key[0], name)
        except ClusterError as error:
            if error.transient:
                raise
            return None
        labels = {} if live is None else live["metadata"].get("labels", {})
        return live if labels.get(MANAGED_BY) == FIELD_MANAGER else None
