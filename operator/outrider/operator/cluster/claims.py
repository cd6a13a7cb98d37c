"""Claims of namespaces: a Lease in each that has services, so that one operator alone acts there.

Two operators whose scopes overlap would write the same objects for ever, as one field manager. The
one that holds a namespace's claim looks after its services; another leaves them alone, leaves its
name in the claim, and takes it once nobody renews it. All processes of one operator have one name,
so that a new leader goes on at once. Leaves what follows for a service to `reconcile`.
"""

import asyncio
import datetime
import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

from outrider.operator.cluster.client import CONFLICT, Cluster, ClusterError
from outrider.operator.cluster.kinds import LEASE
from outrider.operator.naming import CLAIM_NAME, RIVAL_ANNOTATION

CLAIM_SECONDS = 120.0
"""Time after which a claim that nobody renews is free, by the clock of whoever waits. Far longer
than a leader's Lease lives: who loses a claim by sleeping has lost that before, and may not
write."""
LOOK_SECONDS = 40.0
"""Longest time from one look at a claim, which renews it, to the next."""
TRIES = 3
"""Looks at a claim that others write meanwhile."""
MAX_AT_ONCE = 8
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Claim:
    """What the last look at a namespace's claim has shown."""

    holder: str
    """Name of the operator that looks after the namespace."""
    is_ours: bool
    rival: str = ""
    """Ours alone: an operator that wants the namespace too; empty: none has said so lately."""


@dataclass(slots=True)
class _Seen:
    """State of one claim; times are those of the process's own clock."""

    claim: Claim | None = None
    renewed: str = ""
    """Time of renewal that was read last."""
    since: float = -math.inf
    """When that was first read."""
    until: float = -math.inf
    """Time until which a claim of ours holds."""
    rival_at: float = -math.inf
    """When a rival's name was last found."""


class Claims:
    """The claims of the namespaces in which there are services."""

    def __init__(
        self, cluster: Cluster, holder: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`holder` is the operator's name."""
        self.holder = holder
        self._cluster = cluster
        self._clock = clock
        self._seen: dict[str, _Seen] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def refused(self, namespace: str) -> bool:
        """Return True if a namespace is known to be another operator's, without asking."""
        seen = self._seen.get(namespace)
        return seen is not None and seen.claim is not None and not seen.claim.is_ours

    async def claim(self, namespace: str) -> Claim:
        """Return who looks after a namespace, as the last look has shown; look where there was
        none, or where ours has expired. Raises `ClusterError`."""
        async with self._locks[namespace]:
            seen = self._seen.setdefault(namespace, _Seen())
            if seen.claim is None or (seen.claim.is_ours and not self._is_ours(seen)):
                await self._look(namespace, seen)
            assert seen.claim is not None, "a look has shown it"
            return seen.claim

    async def keep(
        self, namespaces: Callable[[], Iterable[str]], on_change: Callable[[str], None]
    ) -> NoReturn:
        """Look at the claims of the namespaces that have services, for ever; call `on_change` with
        one whose claim has changed hands or found a rival."""
        while True:
            await asyncio.sleep(self.seconds_to_look)
            await self.look(namespaces, on_change)

    @property
    def seconds_to_look(self) -> float:
        """Seconds until the next look is due: sooner where another's claim may be free before."""
        now, others = self._clock(), filter(self.refused, self._seen)
        free = (self._seen[one].since + CLAIM_SECONDS - now for one in others)
        return min([LOOK_SECONDS, *(seconds for seconds in free if seconds > 0)])

    async def look(
        self, namespaces: Callable[[], Iterable[str]], on_change: Callable[[str], None]
    ) -> None:
        """Renew claims, or look whose they are; those of other namespaces are left to expire."""
        wanted, slots = set(namespaces()), asyncio.Semaphore(MAX_AT_ONCE)

        async def again(namespace: str) -> None:
            async with slots, self._locks[namespace]:
                seen = self._seen.setdefault(namespace, _Seen())
                before = seen.claim
                try:
                    await self._look(namespace, seen)
                except ClusterError as error:
                    log.warning("the claim of %s was not looked at: %s", namespace, error)
                except Exception:  # the outermost loop: other namespaces are to be kept
                    log.exception("the claim of %s was not looked at", namespace)
                if seen.claim != before:
                    on_change(namespace)

        for gone in self._seen.keys() - wanted:
            del self._seen[gone]
        await asyncio.gather(*(again(namespace) for namespace in sorted(wanted)))

    def _is_ours(self, seen: _Seen) -> bool:
        return seen.claim is not None and seen.claim.is_ours and self._clock() < seen.until

    async def _look(self, namespace: str, seen: _Seen) -> None:
        """Take or renew a claim, or leave our name in somebody else's."""
        for left in reversed(range(TRIES)):
            try:
                return await self._settle(namespace, seen)
            except ClusterError as error:
                if error.status != CONFLICT or not left:
                    raise

    async def _settle(self, namespace: str, seen: _Seen) -> None:
        now = self._clock()
        lease = await self._cluster.get(LEASE, namespace, CLAIM_NAME)
        if lease is None:
            await self._cluster.create(self._lease({"namespace": namespace, "name": CLAIM_NAME}))
            seen.claim, seen.until = Claim(self.holder, True), now + CLAIM_SECONDS
            return
        meta, spec = lease["metadata"], lease.get("spec", {})
        holder, renewed = spec.get("holderIdentity", ""), spec.get("renewTime", "")
        if renewed != seen.renewed:
            seen.renewed, seen.since = renewed, now
        named = meta.get("annotations", {}).get(RIVAL_ANNOTATION, "")
        if holder in ("", self.holder) or now - seen.since >= CLAIM_SECONDS:
            if holder not in ("", self.holder):
                log.info("%s is taken: %s has not renewed its claim", namespace, holder)
            await self._cluster.replace(self._lease(_without_rival(meta)))
            rival = self._rival(seen, named, now)
            seen.claim, seen.until = Claim(self.holder, True, rival), now + CLAIM_SECONDS
            return
        if named != self.holder:
            notes = {**meta.get("annotations", {}), RIVAL_ANNOTATION: self.holder}
            await self._cluster.replace({**lease, "metadata": {**meta, "annotations": notes}})
        seen.claim = Claim(holder, False)

    def _rival(self, seen: _Seen, named: str, now: float) -> str:
        """Return the rival that is known: it leaves its name again after each renewal of ours."""
        if named and named != self.holder:
            seen.rival_at = now
            return named
        before = seen.claim
        return before.rival if before and now - seen.rival_at < CLAIM_SECONDS else ""

    def _lease(self, meta: dict[str, Any]) -> dict[str, Any]:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.name,
            "metadata": meta,
            "spec": {
                "holderIdentity": self.holder,
                "leaseDurationSeconds": int(CLAIM_SECONDS),
                "renewTime": now.replace("+00:00", "Z"),
            },
        }


def _without_rival(meta: dict[str, Any]) -> dict[str, Any]:
    notes = {k: v for k, v in meta.get("annotations", {}).items() if k != RIVAL_ANNOTATION}
    return {**meta, "annotations": notes}
