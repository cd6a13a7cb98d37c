"""The Secret with an operator's certificate authorities, beside its Lease.

Read, made and renewed by who leads. Leaves what they sign to `certificates`.
"""

import asyncio
import base64
import datetime
import logging
from typing import Any, NoReturn

from outrider.operator.certificates.authority import Authorities
from outrider.operator.cluster.client import CONFLICT, Cluster, ClusterError
from outrider.operator.cluster.kinds import SECRET

log = logging.getLogger(__name__)

LOOK_SECONDS = 3600.0
"""Seconds between two looks whether new authorities are due."""
LABELS = {"app.kubernetes.io/name": "outrider", "app.kubernetes.io/component": "authorities"}
"""Not those of a service's children: no service owns it."""


class AuthorityStore:
    """The authorities, as they were last read or written."""

    def __init__(self, cluster: Cluster, namespace: str, name: str) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._name = name
        self._known = Authorities()

    def current(self) -> Authorities:
        """Return the authorities; `load` comes first."""
        return self._known

    async def load(self) -> None:
        """Read the Secret; make it, or renew what it holds, if need be. Raises `ClusterError`.

        One that is deleted while its operator runs is written again as it was: what pods hold stays
        valid. New authorities need a restart besides.
        """
        live = await self._cluster.get(SECRET, self._namespace, self._name)
        stored = self._known if live is None else self._read(live)
        renewed = stored.renewed(datetime.datetime.now(datetime.UTC))
        if live is None or renewed != stored:
            await self._write(renewed, live)
            log.info("%d certificate authorities are in %s", len(renewed.pairs), self)
        self._known = renewed

    async def keep(self) -> NoReturn:
        """Look at them again and again; ends only by cancellation."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.load()
            except ClusterError as error:
                log.warning("the certificate authorities were not looked at: %s", error)
            except Exception:
                log.exception("the certificate authorities were not looked at")

    def __str__(self) -> str:
        return f"the Secret {self._namespace}/{self._name}"

    def _read(self, live: dict[str, Any]) -> Authorities:
        data = live.get("data") or {}
        try:
            plain = {key: base64.b64decode(value, validate=True) for key, value in data.items()}
            return Authorities.from_data(plain)
        except ValueError as error:
            words = f"it cannot be read ({error}); once it is deleted another one is made"
            raise ClusterError(str(self), CONFLICT, words) from None

    async def _write(self, wanted: Authorities, live: dict[str, Any] | None) -> None:
        """Write them, unless another process has: then this one must not lead."""
        meta: dict[str, Any] = {"namespace": self._namespace, "name": self._name, "labels": LABELS}
        data = wanted.to_data()
        body = {
            "apiVersion": SECRET.api_version,
            "kind": SECRET.name,
            "metadata": meta,
            "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
        }
        if live is None:
            await self._cluster.create(body)
        else:
            meta["resourceVersion"] = live["metadata"]["resourceVersion"]
            await self._cluster.apply(body)
