"""State of one service between passes; losing it with the process costs only repeated work."""

import dataclasses
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Self

from outrider.contract.settings import Role
from outrider.operator.apply.applier import Applier
from outrider.operator.apply.failures import ApplyFailures
from outrider.operator.certificates.authority import Authorities
from outrider.operator.cluster.certificate_secrets import (
    AGAIN_SECONDS,
    WAITING_SECONDS,
    CertificateSecrets,
)
from outrider.operator.cluster.client import ClusterError
from outrider.operator.cluster.differences import AppliedCache
from outrider.operator.cluster.interfaces import ClusterReader, ClusterWriter
from outrider.operator.cluster.kinds import SECRET, ServiceKey
from outrider.operator.cluster.own_writes import OwnWrites
from outrider.operator.cluster.pod_controllers import PodControllers
from outrider.operator.cluster.watch_handlers import drafts_of
from outrider.operator.manifests.certificates import certificate_secrets, secret_key
from outrider.operator.manifests.replicas import ReplicaOwnerships
from outrider.operator.observed.live_workloads import workload_uids
from outrider.operator.observed.owner import Owner
from outrider.operator.observed.pods import has_begun, has_ended
from outrider.operator.observed.service import (
    Object,
    Observed,
    Observer,
    child_key,
)
from outrider.operator.server.metrics import OperatorMetrics
from outrider.operator.spec.service import ServiceReader, SpeculativeService
from outrider.operator.status.conditions import broken, invalid
from outrider.operator.status.privileges import Privileges
from outrider.operator.status.report import StatusReporter
from outrider.operator.status.view import View
from outrider.operator.work_queue import Retry
from outrider.operator.workers.poll import WorkerPoll

log = logging.getLogger(__name__)
REST_SECONDS = 3600.0
"""Longest time without a whole pass. What is due by the clock alone is not in the inputs of a pass:
certificates, which last for weeks."""


@dataclass(frozen=True, slots=True)
class Rest:
    """Inputs of a pass: after one that had nothing to do, others with the same have nothing."""

    observed: Observed
    inputs: tuple[object, ...]
    since: float
    """When it decided, in seconds since the epoch."""

    @classmethod
    def of(cls, view: View) -> Self:
        """Return the inputs of a pass that has decided."""
        return cls(view.observed, view.inputs, view.now)

    def continues(self, last: Self | None) -> bool:
        """True if the last pass had the same inputs, and nothing to do."""
        if last is None or not 0 <= self.since - last.since < REST_SECONDS:
            return False
        return self.observed is last.observed and self.inputs == last.inputs


class ServiceState:
    """What is known of one service, and who writes what is reported of it."""

    def __init__(
        self,
        key: ServiceKey,
        writer: ClusterWriter,
        reader: ClusterReader,
        metrics: OperatorMetrics,
        clock: Callable[[], float],
        signs: bool,
    ) -> None:
        """`clock` gives seconds since the epoch; `signs`: the operator signs certificates."""
        self._key, self._writer, self._cluster, self._clock = key, writer, reader, clock
        self._observer = Observer()
        self._controllers = PodControllers(writer, key[0], clock)
        self._lender_controllers = PodControllers(writer, key[0], clock)
        """Controllers of the pods of the service whose drafts the targets link to."""
        self._secrets = CertificateSecrets(writer, key, clock) if signs else None
        self._broken = 0
        """Passes in a row that ended with an error that nobody expected."""
        self.poll = WorkerPoll()
        self.applied = AppliedCache()
        self.own_writes = OwnWrites()
        self.reader = ServiceReader()
        self.ownership: ReplicaOwnerships = {}
        self.failures = ApplyFailures()
        self.privileges = Privileges()
        self.reporter = StatusReporter(writer, metrics, clock, self.own_writes)
        self.rest: Rest | None = None
        """None: the last pass had something to do."""

    async def read_unwatched(self, raw: Object) -> None:
        """Read what no watch shows, where it is due: the Secrets with certificates, and whose the
        pods with the service's labels are, and those with its lender's. Raises `Retry`."""
        try:
            await self._read_secrets()
        except ClusterError as error:
            raise Retry(f"certificates cannot be read: {error}", error.retry_after) from None
        service, children = self._newest(raw)
        try:
            await _read(self._controllers, service, children, self._pods(self._key))
            if (key := self._lender(service)) and (lender := self._cluster.service(key)):
                children = self._cluster.children(key)
                await _read(self._lender_controllers, lender, children, self._pods(key))
        except ClusterError as error:
            raise Retry(f"nobody knows whose the pods are: {error}", error.retry_after) from None

    async def _read_secrets(self) -> None:
        """Read them; a service that has nothing has none."""
        if self._secrets is None or not any(self._cluster.children(self._key)):
            return
        seconds = AGAIN_SECONDS if all(map(has_begun, self._pods(self._key))) else WAITING_SECONDS
        await self._secrets.read(0.0 if self.own_writes.holds(SECRET.name) else seconds)

    def observe(self, raw: Object) -> Observed:
        """Return the watch caches, updated with own writes that they do not show yet; of pods,
        those that the service's workloads have made."""
        service, children = self._newest(raw)
        pods, key = self._controllers.own(self._pods(self._key)), self._lender(service)
        lent = () if key is None else self._lender_controllers.own(self._pods(key))
        return self._observer.observe(service, children, pods, self._clock(), lent)

    def _pods(self, key: ServiceKey) -> list[Object]:
        """Return a service's pods that have not ended."""
        return [pod for pod in self._cluster.pods(key) if not has_ended(pod)]

    def _newest(self, raw: Object) -> tuple[Object, Iterable[Object]]:
        """Return the service and its children."""
        secrets = () if self._secrets is None else self._secrets.lives
        known = (raw, *self._cluster.children(self._key), *secrets)
        cached = {child_key(one): one for one in known}
        newest = self.own_writes.overlay(cached)
        return newest.pop(child_key(raw)), newest.values()

    def _lender(self, service: Object) -> ServiceKey | None:
        name = drafts_of(service)
        return None if name is None else (self._key[0], name)

    async def leave_invalid(
        self, observed: Observed, signers: Authorities | None, problem: str
    ) -> None:
        """Report a description that cannot be read; its pods are left as they are, but for their
        certificates, which are renewed. Raises `Retry`."""
        there = {secret_key(observed.owner.name, role): role for role in Role}
        lives = {key: live for key, live in observed.children.items() if key in there}
        some = dataclasses.replace(observed, children=lives)
        roles = map(there.__getitem__, lives)
        lender = drafts_of(observed.raw)
        secrets = certificate_secrets(some.owner, roles, lives, signers, self._clock(), lender)
        result = await Applier(self._writer, some, self.applied, self.own_writes).apply(secrets, {})
        unwritten = await self.reporter.report_problem(observed, invalid(problem))
        self.reporter.check(observed, result.new_failures, unwritten)

    async def report_broken(self, error: Exception) -> None:
        """Report an error that nobody expected once it has ended two passes in a row."""
        self._broken, self.rest = self._broken + 1, None
        raw = self._cluster.service(self._key)
        if raw is None or self._broken < 2:
            return
        observed, problem = self.observe(raw), f"{type(error).__name__}: {error}"
        for unwritten in await self.reporter.report_problem(observed, broken(problem)):
            log.warning("%s: %s", observed.owner.name, unwritten)

    def end_pass(self, observed: Observed, service: SpeculativeService) -> float:
        """Return seconds until the next pass, after one in which nothing broke."""
        self._broken, now = 0, self._clock()
        failures = self.failures.wait(observed.generation, now)
        return min(self.poll.wait(observed, service, now), failures)


async def _read(
    controllers: PodControllers,
    service: Object,
    children: Iterable[Object],
    pods: Iterable[Object],
) -> None:
    owner = Owner.of(service)
    await controllers.read(owner.uid, workload_uids(children, owner), [*pods])
