"""Leader election by a Lease: its holder watches and writes, the other processes wait.

A leader that cannot renew stops before the lease expires, so that no two ever write; a process that
was paused meanwhile finds that out before its next write. Leaves the work to its caller.
"""

import asyncio
import datetime
import json
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kubernetes.aio.client import ApiException
from kubernetes.aio.leaderelection.electionconfig import Config
from kubernetes.aio.leaderelection.leaderelection import LeaderElection
from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord
from kubernetes.aio.leaderelection.resourcelock.baselock import BaseLock

from outrider.operator.cluster.client import CONFLICT, NOT_FOUND, Cluster, ClusterError
from outrider.operator.cluster.kinds import LEASE

Writes = Callable[[Mapping[str, Any]], Awaitable[Any]]
LEASE_SECONDS = 15
"""Seconds after which a Lease that is not renewed expires."""
MIN_LEASE_SECONDS = 8
"""Below, the library's election would try more than once a second, which it refuses."""
MAX_LEASE_SECONDS = 60
"""Half as long as a claim of a namespace lasts: who sleeps until that is free has lost the Lease
before."""
TRANSITIONS = "leaseTransitions"
"""How often a Lease has changed hands."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Term:
    """Name of the Lease and its times in seconds; client-go's values and proportions."""

    namespace: str
    name: str
    identity: str
    lease_seconds: int = LEASE_SECONDS

    @property
    def renew_seconds(self) -> float:
        """Time for which a leader tries to renew it."""
        return self.lease_seconds * 2 / 3

    @property
    def retry_seconds(self) -> float:
        """Time from one attempt to the next."""
        return self.lease_seconds * 2 / 15

    @property
    def safe_seconds(self) -> float:
        """Time after a renewal for which a lease is safe; other processes count from later."""
        return (self.lease_seconds + self.renew_seconds) / 2


class LeaseLock(BaseLock):
    """The Lease as the library's election wants it.

    Written here because the library's own lock cannot make a Lease (release 37 passes `pretty=True`
    where its client takes text) and raises where the API server does not answer.
    """

    def __init__(self, cluster: Cluster, term: Term) -> None:
        super().__init__(term.name, term.namespace, term.identity)
        self._cluster = cluster
        self._term = term
        self._lease: dict[str, Any] | None = None
        self._asked_at = -math.inf
        self._renewed_at = -math.inf

    @property
    def is_ours(self) -> bool:
        """True if the lease is certainly ours."""
        return self.seconds_left > 0

    @property
    def seconds_left(self) -> float:
        """Seconds for which it is certainly ours."""
        return self._renewed_at + self._term.safe_seconds - time.monotonic()

    async def get(self, name: str, namespace: str) -> tuple[bool, Any]:
        """Return True and the record (None if the Lease has no holder), or False and the error."""
        self._asked_at = time.monotonic()
        try:
            async with asyncio.timeout(self._term.renew_seconds / 2):
                self._lease = await self._cluster.get(LEASE, namespace, name)
        except TimeoutError:
            return False, _refusal(0, "no answer")
        except ClusterError as error:
            return False, _refusal(error.status, str(error))
        if self._lease is None:
            return False, _refusal(NOT_FOUND, "there is no Lease yet")
        spec = self._lease.get("spec", {})
        values = [spec.get(key) for key in FIELDS]
        return True, LeaderElectionRecord(*map(str, values)) if all(values) else None

    async def create(self, name: str, namespace: str, election_record: Any) -> bool:
        """Create the Lease; return whether it worked."""
        meta = {"name": name, "namespace": namespace}
        return await self._write(self._cluster.create, meta, election_record, 0)

    async def update(self, name: str, namespace: str, updated_record: Any) -> bool:
        """Renew the Lease as it was last read; return whether it worked."""
        assert self._lease is not None, "the election reads before it writes"
        spec = self._lease.get("spec", {})
        changes = spec.get("holderIdentity") != updated_record.holder_identity
        count = spec.get(TRANSITIONS, 0) + changes
        return await self._write(
            self._cluster.replace, self._lease["metadata"], updated_record, count
        )

    async def release(self) -> None:
        """Give the Lease back, so that the next process leads at once; without an answer it waits
        for the Lease to expire."""
        self._renewed_at = -math.inf
        try:
            async with asyncio.timeout(self._term.renew_seconds / 2):
                while not await self._expire_lease():
                    log.debug("the lease was renewed while it was given back")
        except (TimeoutError, ClusterError) as error:
            log.warning("the lease could not be given back: %s", error or "no answer")

    async def _expire_lease(self) -> bool:
        """Return False if a renewal that nobody waits for any more came between."""
        lease = await self._cluster.get(LEASE, self.namespace, self.name)
        spec = {} if lease is None else lease.get("spec", {})
        if lease is None or spec.get("holderIdentity") != self.identity:
            return True
        left = {"leaseDurationSeconds": 1, TRANSITIONS: spec.get(TRANSITIONS, 0)}
        try:
            await self._cluster.replace({**lease, "spec": left})
        except ClusterError as error:
            if error.status != CONFLICT:
                raise
            return False
        return True

    async def _write(
        self, write: Writes, meta: Mapping[str, Any], record: Any, transitions: int
    ) -> bool:
        spec = {
            TRANSITIONS: transitions,
            "holderIdentity": record.holder_identity,
            "leaseDurationSeconds": int(record.lease_duration),
            "acquireTime": _utc(record.acquire_time),
            "renewTime": _utc(record.renew_time),
        }
        lease = {"apiVersion": LEASE.api_version, "kind": LEASE.name, "metadata": meta}
        try:
            async with asyncio.timeout(self._term.renew_seconds / 2):
                await write({**lease, "spec": spec})
        except TimeoutError:
            log.warning("the lease could not be written: no answer")
            return False
        except ClusterError as error:
            if error.status != CONFLICT:  # another candidate was quicker
                log.warning("the lease could not be written: %s", error)
            return False
        self._renewed_at = self._asked_at
        return True


FIELDS = ("holderIdentity", "leaseDurationSeconds", "acquireTime", "renewTime")


def _utc(text: str) -> str:
    """Return the library's local time in the API's format; a time in that format stays."""
    if text.endswith("Z"):
        return text
    at = datetime.datetime.fromisoformat(text).astimezone(datetime.UTC)
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _refusal(status: int, words: str) -> ApiException:
    """Return an error as the election reads it."""
    refusal = ApiException(status=status, reason=words)
    refusal.body = json.dumps({"code": status})
    return refusal


def _promise() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


@dataclass(frozen=True, slots=True)
class _Leadership:
    """The work of a leader, from the moment that it leads; `done` raises what the work raised."""

    term: Term
    work: Callable[[], Awaitable[None]]
    began: asyncio.Event = field(default_factory=asyncio.Event)
    done: asyncio.Future[None] = field(default_factory=_promise)

    async def begin(self) -> None:
        """Run the work; the election calls it once it is won, and cancels it once it is lost."""
        self.began.set()
        term = self.term
        log.info("%s leads: it holds the lease %s/%s", term.identity, term.namespace, term.name)
        try:
            await self.work()
        except asyncio.CancelledError:
            self.done.cancel()
            raise
        except Exception as error:  # raised where `done` is awaited
            self.done.set_exception(error)
        else:
            self.done.set_result(None)


async def lead(cluster: Cluster, term: Term, work: Callable[[], Awaitable[None]]) -> bool:
    """Wait for the Lease, then run `work` while it is held.

    Returns once `work` has ended (True) or the Lease was lost (False); raises what `work` raised.
    """
    lock, leadership = LeaseLock(cluster, term), _Leadership(term, work)
    times = (term.lease_seconds, term.renew_seconds, term.retry_seconds)
    cluster.may_write = lambda: lock.is_ours
    election = asyncio.ensure_future(
        LeaderElection(Config(lock, *times, leadership.begin, _lost)).run()
    )
    expiry = asyncio.ensure_future(_expired(lock, leadership.began))
    try:
        await asyncio.wait({election, leadership.done, expiry}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (election, expiry):
            task.cancel()
        await asyncio.gather(election, expiry, return_exceptions=True)
    if leadership.done.cancelled() or not leadership.done.done():
        log.error("the lease was lost: it could not be renewed in time")
        return False
    await lock.release()
    leadership.done.result()
    return True


async def _expired(lock: LeaseLock, began: asyncio.Event) -> None:
    """Return once a lease that was ours may have expired."""
    await began.wait()
    while lock.is_ours:
        await asyncio.sleep(lock.seconds_left)


async def _lost() -> None:
    """Do nothing: `lead` notices the loss and logs it."""
