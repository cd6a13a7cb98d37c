"""One pass over one service: observe, decide, plan, apply. Level-triggered and idempotent.

Reads watch caches and what workers have answered, and writes only what differs. Everything that
decisions depend on is stored in the cluster, so a pass may be interrupted after any step. The work
queue calls it. Leaves asking workers to tasks that no pass waits for, and the status to `report`.
"""

import dataclasses
import datetime
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from outrider.client.errors import ClientError
from outrider.contract.settings import PolicySettings, Role
from outrider.contract.state import State
from outrider.operator import compute_conditions, deletion_costs
from outrider.operator.apply import Applier
from outrider.operator.apply_failures import ApplyFailures
from outrider.operator.cluster.claims import LOOK_SECONDS, Claim
from outrider.operator.cluster.client import ClusterError
from outrider.operator.cluster.differences import AppliedCache
from outrider.operator.cluster.kinds import CONFIG_MAP, SECRET, ChildKey, ServiceKey
from outrider.operator.cluster.own_writes import OwnWrites
from outrider.operator.control import policy
from outrider.operator.control.inputs import ControlInputs, Decision
from outrider.operator.control.memory import LoopMemory
from outrider.operator.control.settings import ControlSettings
from outrider.operator.interfaces import ClaimReader, ClusterReader, ClusterWriter, PolledWorkers
from outrider.operator.manifests.certificates import certificate_secret
from outrider.operator.manifests.child import Owner
from outrider.operator.manifests.desired import (
    Desired,
    Intent,
    Platform,
    desired,
    role_spec,
    roles,
    unserved,
)
from outrider.operator.manifests.termination import target_seconds
from outrider.operator.members import leaders_to_drain
from outrider.operator.naming import certificate_name, intent_name
from outrider.operator.observed import Object, Observed, child_key, observe
from outrider.operator.plan import control
from outrider.operator.pods import Pod
from outrider.operator.replicas import (
    ReplicaOwnerships,
    foreign_owners,
    replicas,
    replicas_of_spec,
    seeds,
)
from outrider.operator.report import Reported, StatusReporter
from outrider.operator.server.metrics import OperatorMetrics
from outrider.operator.spec.document import SpecError
from outrider.operator.spec.service import ServiceReader, SpeculativeService
from outrider.operator.view import View
from outrider.operator.work_queue import Retry
from outrider.operator.workers.poll import (
    WorkerPoll,
    control_inputs,
    outdated,
    policy_for,
    policy_in_force,
)

log = logging.getLogger(__name__)
CLAIMED = "NamespaceClaimed"
"""Reason of the event of an operator that leaves a service to another one."""
RENEWAL_SECONDS = 3600.0
"""Between two looks at the certificates of a service that cannot be read; they last for weeks."""


@dataclass(slots=True)
class ServiceCache:
    """State of one service between passes; losing it with the process costs only repeated work."""

    poll: WorkerPoll = field(default_factory=WorkerPoll)
    applied: AppliedCache = field(default_factory=AppliedCache)
    own_writes: OwnWrites = field(default_factory=OwnWrites)
    reported: Reported = field(default_factory=Reported)
    reader: ServiceReader = field(default_factory=ServiceReader)
    ownership: ReplicaOwnerships = field(default_factory=dict)
    failures: ApplyFailures = field(default_factory=ApplyFailures)
    broken: int = 0
    """Passes in a row that ended with an error that nobody expected."""


class Reconciler:
    """Makes the cluster match the descriptions of its services."""

    def __init__(
        self,
        writer: ClusterWriter,
        reader: ClusterReader,
        workers: PolledWorkers,
        metrics: OperatorMetrics,
        platform: Platform,
        clock: Callable[[], float] = time.time,
        claims: ClaimReader | None = None,
    ) -> None:
        """`clock` gives seconds since the epoch; `claims` None: there is no other operator."""
        self._writer = writer
        self._reader = reader
        self._workers = workers
        self._metrics = metrics
        self._platform = platform
        self._clock = clock
        self._reporter = StatusReporter(writer, metrics, clock)
        self._claims = claims
        self._refused: dict[ServiceKey, str] = {}
        self._caches: dict[ServiceKey, ServiceCache] = {}
        metrics.services = lambda: {
            key: cache.reported.conditions for key, cache in self._caches.items()
        }

    def new(self, key: ServiceKey) -> bool:
        """True if a pass has every child to make: more requests than ten other passes."""
        return self._reader.service(key) is not None and not any(self._reader.children(key))

    async def prepare(self, key: ServiceKey) -> None:
        """Ask a service's workers where that is due, and wait a little for the answers.

        Comes before a pass, and holds no place of one: workers that hang delay no other service.
        """
        raw = self._reader.service(key)
        if raw is None or "deletionTimestamp" in raw["metadata"] or self._workers.is_asked(key):
            return
        try:
            claim = await self._claim(key)
        except Retry:  # the pass says it
            return
        if claim is not None and not claim.is_ours:
            return
        cache = self._caches.setdefault(key, ServiceCache())
        observed = self._observe(key, raw, cache.own_writes)
        try:
            service = cache.reader.read(observed.raw)
        except SpecError:  # the pass says it
            return
        now, seconds = self._clock(), _interval(service)
        shrinks = deletion_costs.shrinks(observed, replicas_of_spec(observed, service, Role.TARGET))
        if shrinks or cache.poll.due(observed, service, now, seconds):
            before = cache.poll.uids
            question = cache.poll.question(observed, now, seconds)
            await self._workers.ask(key, question)
            await self._workers.forget(before - cache.poll.uids)

    async def reconcile(self, key: ServiceKey) -> float | None:
        """Run one pass; return seconds until the next at the latest, None where there is none.

        Raises `Retry` where the API server could not do all that was asked.
        """
        began = time.monotonic()
        try:
            seconds = await self._pass(key)
        except Retry:
            self._metrics.passes.labels(key[0], "error").inc()
            raise
        except Exception as error:
            self._metrics.passes.labels(key[0], "error").inc()
            self._metrics.errors.labels(key[0], type(error).__name__).inc()
            await self._report_broken(key, f"{type(error).__name__}: {error}")
            raise
        self._metrics.passes.labels(key[0], "ok").inc()
        self._metrics.seconds.observe(time.monotonic() - began)
        return seconds

    async def _pass(self, key: ServiceKey) -> float | None:
        raw = self._reader.service(key)
        if raw is None or "deletionTimestamp" in raw["metadata"]:
            await self._forget(key)
            self._refused.pop(key, None)
            return None
        claim = await self._claim(key)
        if claim is not None and not claim.is_ours:
            await self._forget(key)
            await self._refuse(key, raw, claim.holder)
            return LOOK_SECONDS
        self._refused.pop(key, None)
        cache = self._caches.setdefault(key, ServiceCache())
        observed = self._observe(key, raw, cache.own_writes)
        try:
            service = cache.reader.read(observed.raw)
        except SpecError as error:
            failed = await self._renew(observed, cache)
            await self._report_invalid(key, observed, str(error), cache, failed)
            return RENEWAL_SECONDS if self._platform.certifies else None
        if (reports := self._workers.reports(key)) is not None:
            cache.poll.record(observed, reports)
        owners = foreign_owners(observed, service, cache.ownership, self._clock())
        decision, inputs = self._decide(observed, service, cache.poll, Role.DRAFT in owners)
        view, wanted = await self._apply(observed, service, cache, decision, inputs, owners)
        view = dataclasses.replace(view, rival="" if claim is None else claim.rival)
        if view.result.is_applied((CONFIG_MAP.name, intent_name(observed.owner.name))):
            self._push(view)
            self._drain(view)
            await self._reporter.announce(observed, decision, cache.reported)
        unwritten = await self._reporter.report(view, wanted, cache.reported, cache.own_writes)
        cache.broken = 0
        now = self._clock()
        wait = min(
            cache.poll.wait(observed, service, now, _interval(service)),
            cache.failures.wait(observed.generation, now),
        )
        self._check(key, view.result.new_failures, unwritten, wait)
        return wait

    async def _claim(self, key: ServiceKey) -> Claim | None:
        """Return who looks after a service; None: nobody else can."""
        try:
            return None if self._claims is None else await self._claims.claim(key[0])
        except ClusterError as error:
            raise Retry(f"nobody knows who manages the namespace: {error}") from None

    async def _refuse(self, key: ServiceKey, raw: Object, holder: str) -> None:
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

    def _observe(self, key: ServiceKey, raw: Object, own_writes: OwnWrites) -> Observed:
        """Return the watch caches, updated with own writes that they do not show yet."""
        cached = {child_key(one): one for one in (raw, *self._reader.children(key))}
        newest = own_writes.overlay(cached)
        service = newest.pop(child_key(raw))
        return observe(service, newest.values(), self._reader.pods(key), self._clock())

    def _decide(
        self, observed: Observed, service: SpeculativeService, poll: WorkerPoll, contested: bool
    ) -> tuple[Decision, ControlInputs]:
        now = self._clock()
        settings = control(service)
        inputs = control_inputs(observed, service, poll, contested, now)
        memory = self._recall(observed, settings, poll, now)
        return policy.decide(settings, memory, inputs, now), inputs

    def _recall(
        self, observed: Observed, settings: ControlSettings, poll: WorkerPoll, now: float
    ) -> LoopMemory:
        in_force = policy_in_force(observed, poll)
        memory, problem = policy.recall(observed.memory, settings, now, in_force)
        if problem is not None:
            log.warning("%s: %s; it starts anew", observed.owner.name, problem)
        return memory

    async def _apply(
        self,
        observed: Observed,
        service: SpeculativeService,
        cache: ServiceCache,
        decision: Decision,
        inputs: ControlInputs,
        owners: Mapping[Role, str],
    ) -> tuple[View, Desired]:
        """Apply the children, the ConfigMap with the decision among the first; return what is there
        afterwards, as far as the answers say it."""
        numbers = {
            role: None if role in owners else replicas(observed, service, role, decision)
            for role in roles(service)
        }
        if deletion_costs.shrinks(observed, numbers[Role.TARGET]):
            await deletion_costs.write(self._writer, observed, cache.poll.states)
        pushed = policy_for(observed, service, decision)
        intent = Intent(policy=pushed, memory=decision.memory.dumps())
        platform, current = self._platform, observed.carriers
        made = desired(observed.owner, service, numbers, intent, platform, current)
        wanted = self._certified(observed, service, made)
        unproven = frozenset(
            role.value
            for role in roles(service)
            if role_spec(service, role).pod_template or self._platform.pods.template
        )
        held = cache.failures.held(observed.generation, self._clock())
        applier = Applier(self._writer, observed, cache.applied, cache.own_writes, unproven, held)
        result = await applier.apply(wanted.objects, seeds(observed, service))
        result.refused |= unserved(service, self._platform)
        cache.failures.learn(result.failed, result.held, observed.generation, self._clock())
        view = View(
            observed=self._observe(observed.key, observed.raw, cache.own_writes),
            service=service,
            poll=cache.poll,
            decision=decision,
            window=inputs.window,
            result=result,
            now=self._clock(),
            failing=cache.failures.lasting,
            foreign_owners=owners,
            certificates={
                role: self._platform.certificate_of(observed.owner.name, role)
                for role in roles(service)
            },
            unknown_fields=cache.reader.unknown,
            removed_fields=cache.reader.removed,
            keeps_pods=bool(wanted.next_revisions),
        )
        return view, wanted

    def _certified(
        self, observed: Observed, service: SpeculativeService, wanted: Desired
    ) -> Desired:
        """Return what is wanted with the Secrets of the pods' certificates, where they have any."""
        secrets = self._secrets(observed, roles(service))
        return dataclasses.replace(wanted, objects=(*secrets, *wanted.objects))

    def _secrets(self, observed: Observed, roles: Iterable[Role]) -> list[dict[str, Any]]:
        """Return the Secrets with the certificates of roles' pods, none where they have none."""
        if self._platform.authorities is None:
            return []
        authorities, owner = self._platform.authorities(), observed.owner
        now = datetime.datetime.fromtimestamp(self._clock(), datetime.UTC)
        return [
            certificate_secret(
                owner, role, observed.children.get(_secret(owner, role)), authorities, now
            )
            for role in roles
        ]

    async def _renew(self, observed: Observed, cache: ServiceCache) -> list[ClusterError]:
        """Renew the certificates of pods that are left as they are; return why some could not
        be."""
        there = {_secret(observed.owner, role): role for role in Role}
        lives = {key: live for key, live in observed.children.items() if key in there}
        some = dataclasses.replace(observed, children=lives)
        applier = Applier(self._writer, some, cache.applied, cache.own_writes)
        result = await applier.apply(self._secrets(some, map(there.__getitem__, lives)), {})
        return result.new_failures

    def _push(self, view: View) -> None:
        """Push the policy to every target that follows an older one."""
        wanted = policy_for(view.observed, view.service, view.decision)
        pods = [pod for pod in view.observed.pods_of(Role.TARGET) if pod.running]
        view.poll.unacknowledged &= {pod.uid for pod in pods}
        for pod in pods:
            if outdated(view.poll, pod, wanted):
                self._workers.push(pod, wanted, _learning(view.poll, pod, wanted))

    def _drain(self, view: View) -> None:
        """Have targets finish of whose replica another pod is about to end."""
        seconds = target_seconds(view.service.spec.target.requests.max_seconds)
        for pod in leaders_to_drain(view.observed, Role.TARGET):
            state = view.poll.states.get(pod.uid)
            if state is not None and not state.draining:
                self._workers.drain(pod, state.incarnation, seconds)

    def _check(
        self,
        key: ServiceKey,
        failed: Sequence[ClusterError],
        unwritten: Sequence[ClusterError],
        wait: float = math.inf,
    ) -> None:
        """Raise `Retry` for the errors of a pass, if there are any.

        `failed` hold back only their objects; for what could not be written of the status, a server
        that asks for patience gets it from the whole service. `wait`: seconds until the next pass
        at the latest.
        """
        if errors := [*failed, *unwritten]:
            self._metrics.errors.labels(key[0], ClusterError.__name__).inc(len(errors))
            after = max((error.retry_after for error in unwritten), default=0.0)
            raise Retry("; ".join(dict.fromkeys(map(str, errors))), after, wait)

    async def _report_invalid(
        self,
        key: ServiceKey,
        observed: Observed,
        problem: str,
        cache: ServiceCache,
        failed: Sequence[ClusterError],
    ) -> None:
        """Report a description that cannot be read; pods are left as they are, but for their
        certificates, at which the server may have `failed`."""
        found = compute_conditions.invalid(problem)
        reported, own_writes = cache.reported, cache.own_writes
        errors = await self._reporter.report_problem(observed, found, reported, own_writes)
        self._check(key, failed, errors)

    async def _report_broken(self, key: ServiceKey, problem: str) -> None:
        """Report an error that nobody expected once it has ended two passes in a row."""
        raw, cache = self._reader.service(key), self._caches.get(key)
        if raw is None or cache is None:
            return
        cache.broken += 1
        if cache.broken > 1:
            observed = self._observe(key, raw, cache.own_writes)
            found = compute_conditions.broken(problem)
            reported, own_writes = cache.reported, cache.own_writes
            for error in await self._reporter.report_problem(observed, found, reported, own_writes):
                log.warning("%s: %s", observed.owner.name, error)

    async def _forget(self, key: ServiceKey) -> None:
        """Drop the state of a service that is gone; the cluster deletes what it owned."""
        cache = self._caches.pop(key, None)
        self._metrics.forget(*key)
        if cache is not None:
            await self._workers.forget(cache.poll.uids)
        await self._workers.forget_service(key)


def _learning(
    poll: WorkerPoll, pod: Pod, policy: PolicySettings
) -> Callable[[State | ClientError], None]:
    """Return what records the outcome of a push; it logs the first failure and its end."""

    def learn(result: State | ClientError) -> None:
        known = pod.uid in poll.unacknowledged
        if isinstance(result, State):
            poll.learn(pod, result)
            poll.unacknowledged.discard(pod.uid)
            if known:
                log.info("%s takes policies again: %d", pod.name, policy.version)
            return
        poll.unacknowledged.add(pod.uid)
        if not known:
            log.warning("%s did not take policy %d: %s", pod.name, policy.version, result)

    return learn


def _secret(owner: Owner, role: Role) -> ChildKey:
    """Return the key of the Secret with the certificate of a role's pods."""
    return SECRET.name, certificate_name(owner.name, role)


def _interval(service: SpeculativeService) -> float:
    """Return the seconds between two polls."""
    return float(service.spec.speculation.control.interval_seconds)
