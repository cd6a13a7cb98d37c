"""One pass over one service: observe, decide, plan, apply. Level-triggered and idempotent.

Reads watch caches, asks the workers, and writes only what differs. Everything that decisions depend
on is stored in the cluster, so a pass may be interrupted after any step. The work queue calls it.
"""

import asyncio
import datetime
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from outrider.client.errors import ClientError
from outrider.contract.settings import PolicySettings, Role
from outrider.operator import compute_conditions, status
from outrider.operator.apply import Applier
from outrider.operator.cluster.client import ClusterError
from outrider.operator.cluster.differences import AppliedCache
from outrider.operator.cluster.kinds import CONFIG_MAP, ServiceKey
from outrider.operator.cluster.own_writes import OwnWrites
from outrider.operator.compute_conditions import View
from outrider.operator.control import policy
from outrider.operator.control.inputs import ControlInputs, Decision
from outrider.operator.control.memory import Memory
from outrider.operator.control.settings import ControlSettings
from outrider.operator.interfaces import ClusterReader, ClusterWriter, Workers
from outrider.operator.manifests.desired import Desired, Intent, Platform, desired, roles, unserved
from outrider.operator.naming import intent_name
from outrider.operator.observed import Object, Observed, child_key, observe
from outrider.operator.plan import control
from outrider.operator.pods import Pod
from outrider.operator.replica_ownership import ReplicaOwnerships, foreign_owners
from outrider.operator.replicas import replicas, seeds
from outrider.operator.server import advice
from outrider.operator.server.metrics import OperatorMetrics
from outrider.operator.spec import ServiceReader, SpecError, SpeculativeService
from outrider.operator.workers import state_mapping
from outrider.operator.workers.poll import (
    WorkerPoll,
    control_inputs,
    metrics_age,
    outdated,
    policy_for,
    policy_in_force,
    question,
    reads_pods,
)

log = logging.getLogger(__name__)


@dataclass(slots=True)
class ServiceCache:
    """State of one service between passes; losing it with the process costs only repeated work."""

    poll: WorkerPoll = field(default_factory=WorkerPoll)
    applied: AppliedCache = field(default_factory=AppliedCache)
    own_writes: OwnWrites = field(default_factory=OwnWrites)
    conditions: dict[str, str] = field(default_factory=dict)
    status_written_at: float = 0.0
    """When the status was last written, by the reconciler's clock."""
    last_sentence: str = ""
    """The sentence that was logged last."""
    reader: ServiceReader = field(default_factory=ServiceReader)
    ownership: ReplicaOwnerships = field(default_factory=dict)


class Reconciler:
    """Makes the cluster match the descriptions of its services."""

    def __init__(
        self,
        writer: ClusterWriter,
        reader: ClusterReader,
        workers: Workers,
        metrics: OperatorMetrics,
        platform: Platform,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`clock` gives seconds since the epoch."""
        self._writer = writer
        self._reader = reader
        self._workers = workers
        self._metrics = metrics
        self._platform = platform
        self._clock = clock
        self._caches: dict[ServiceKey, ServiceCache] = {}
        metrics.services = lambda: (cache.conditions for cache in self._caches.values())

    def new(self, key: ServiceKey) -> bool:
        """True if a pass has every child to make: more requests than ten other passes."""
        return self._reader.service(key) is not None and not any(self._reader.children(key))

    async def reconcile(self, key: ServiceKey) -> float | None:
        """Run one pass; return seconds until the next at the latest, None where there is none."""
        began = time.monotonic()
        try:
            seconds = await self._pass(key)
        except Exception as error:
            self._metrics.passes.labels(key[0], "error").inc()
            self._metrics.errors.labels(key[0], type(error).__name__).inc()
            raise
        self._metrics.passes.labels(key[0], "ok").inc()
        self._metrics.seconds.observe(time.monotonic() - began)
        return seconds

    async def _pass(self, key: ServiceKey) -> float | None:
        raw = self._reader.service(key)
        if raw is None or "deletionTimestamp" in raw["metadata"]:
            await self._forget(key)
            return None
        cache = self._caches.setdefault(key, ServiceCache())
        observed = self._observe(key, raw, cache.own_writes)
        try:
            service = cache.reader.read(observed.raw)
        except SpecError as error:
            await self._report_invalid(observed, str(error), cache)
            return None
        seconds = float(service.spec.speculation.control.interval_seconds)
        await self._poll_workers(key, observed, service, cache.poll)
        owners = foreign_owners(observed, service, cache.ownership, self._clock())
        decision, inputs = self._decide(observed, service, cache.poll, Role.DRAFT in owners)
        view, wanted = await self._apply(observed, service, cache, decision, inputs, owners)
        if view.result.is_applied((CONFIG_MAP.name, intent_name(observed.owner.name))):
            await asyncio.gather(self._announce(observed, decision), self._push(view))
        await self._report(view, wanted, cache)
        return cache.poll.wait(observed, service, self._clock(), seconds)

    def _observe(self, key: ServiceKey, raw: Object, own_writes: OwnWrites) -> Observed:
        """Return the watch caches, updated with own writes that they do not show yet."""
        cached = {child_key(one): one for one in (raw, *self._reader.children(key))}
        newest = own_writes.overlay(cached)
        service = newest.pop(child_key(raw))
        return observe(service, newest.values(), self._reader.pods(key), self._clock())

    async def _poll_workers(
        self, key: ServiceKey, observed: Observed, service: SpeculativeService, poll: WorkerPoll
    ) -> None:
        """Ask the workers, and the Prometheus that has their metrics, if the interval is over or
        their pods have changed."""
        now, seconds = self._clock(), float(service.spec.speculation.control.interval_seconds)
        asked = None
        if poll.due(observed, service, now, seconds):
            full_scrape, before = now - poll.scraped_at >= seconds, poll.uids
            asked = question(observed, service) if full_scrape else None
            reports = await self._workers.reports(observed.pods, metrics=reads_pods(service))
            poll.record(observed, service, reports, now, full_scrape)
            await self._workers.forget(before - poll.uids)
        answer = await self._workers.answer(key, asked)
        if answer is not None and not reads_pods(service):
            poll.record_answer(observed, service, answer, now)

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
    ) -> Memory:
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
        """Apply the children; the ConfigMap with the decision is among the first."""
        numbers = {
            role: None if role in owners else replicas(observed, service, role, decision)
            for role in roles(service)
        }
        pushed = policy_for(observed, service, decision)
        intent = Intent(policy=pushed, memory=decision.memory.dumps())
        wanted = desired(
            observed.owner, service, numbers, intent, self._platform, observed.carriers
        )
        applier = Applier(self._writer, observed, cache.applied, cache.own_writes)
        result = await applier.apply(wanted.objects, seeds(observed, service))
        result.refused |= unserved(service, self._platform)
        now = self._clock()
        view = View(observed, service, cache.poll, decision, inputs.window, result, now, owners)
        return view, wanted

    async def _push(self, view: View) -> None:
        """Push the policy to every target that follows an older one."""
        wanted = policy_for(view.observed, view.service, view.decision)
        pods = [pod for pod in view.observed.pods_of(Role.TARGET) if pod.running]
        view.poll.unacknowledged &= {pod.uid for pod in pods}
        late = [pod for pod in pods if outdated(view.poll, pod, wanted)]
        await asyncio.gather(*(self._push_to(view, pod, wanted) for pod in late))

    async def _push_to(self, view: View, pod: Pod, wanted: PolicySettings) -> None:
        unacknowledged = view.poll.unacknowledged
        policy = state_mapping.understood(wanted, view.poll.reports[pod.uid].state)
        try:
            view.poll.learn(pod, await self._workers.push(pod, policy))
        except ClientError as error:
            if pod.uid not in unacknowledged:
                log.warning("%s did not take policy %d: %s", pod.name, wanted.version, error)
            unacknowledged.add(pod.uid)
        else:
            if pod.uid in unacknowledged:
                log.info("%s takes policies again: %d", pod.name, wanted.version)
            unacknowledged.discard(pod.uid)

    async def _announce(self, observed: Observed, decision: Decision) -> None:
        for transition in decision.transitions:
            self._metrics.decisions.labels(
                observed.owner.namespace, transition.change.value, decision.reason.value
            ).inc()
            await self._event(observed, False, transition.change.value, transition.sentence)

    async def _report(self, view: View, wanted: Desired, cache: ServiceCache) -> None:
        """Write the status where it differs, and log the sentence of the pass where it is new."""
        observed = view.observed
        content = status.status(view, wanted, _text(view.now))
        events: list[status.StatusEvent] = []
        if await self._write_status(observed, content, cache):
            events += status.status_events(observed, content)
        if observed.status.get("observedGeneration") != observed.generation:
            events += (
                status.StatusEvent(True, advice.REASON, note) for note in advice.on(view.service)
            )
        await asyncio.gather(
            *(self._report_scaler(observed, role, wanted, cache) for role in roles(view.service)),
            *(self._event(observed, one.warning, one.reason, one.note) for one in events),
        )
        self._log(view, cache)

    def _log(self, view: View, cache: ServiceCache) -> None:
        owner, sentence = view.observed.owner, view.decision.sentence
        if sentence != cache.last_sentence:
            log.info("%s/%s: %s", owner.namespace, owner.name, sentence)
            cache.last_sentence = sentence
        age = metrics_age(view.observed, view.poll, view.now)
        if age is not None:
            self._metrics.metrics_age.labels(owner.namespace, owner.name).set(age)

    async def _write_status(
        self, observed: Observed, content: status.Object, cache: ServiceCache
    ) -> bool:
        """Write the status if it differs and is due; return whether it was written."""
        cache.conditions = {c["type"]: c["status"] for c in content["conditions"]}
        now, due = self._clock(), cache.status_written_at + status.PERCENT_SECONDS
        if content == observed.status or (
            now < due and not status.differs_in_facts(content, observed.status)
        ):
            return False
        cache.status_written_at = now
        return await self._store_status(
            status.status_object(observed, content), observed.raw, cache
        )

    async def _report_scaler(
        self, observed: Observed, role: Role, wanted: Desired, cache: ServiceCache
    ) -> None:
        content = status.scaler_status(observed, role, wanted)
        if content is not None:
            await self._store_status(content, observed.children[child_key(content)], cache)

    async def _store_status(
        self, content: status.Object, live: Object, cache: ServiceCache
    ) -> bool:
        """Apply a status; return False if the object is gone, which starts another pass anyway."""
        try:
            answer = await self._writer.apply_status(content)
        except ClusterError as error:
            if error.gone:
                return False
            raise
        cache.own_writes.learn(child_key(live), live, answer)
        return True

    async def _report_invalid(self, observed: Observed, problem: str, cache: ServiceCache) -> None:
        """Report a description that cannot be read; pods are left as they are."""
        invalid = status.with_times(
            compute_conditions.invalid(problem), observed, _text(self._clock())
        )
        types = {condition["type"] for condition in invalid}
        others = [c for c in observed.status.get("conditions", ()) if c["type"] not in types]
        content = {**observed.status, "observedGeneration": observed.generation}
        content["conditions"] = [*invalid, *others]
        if await self._write_status(observed, content, cache):
            await self._event(observed, True, invalid[-1]["reason"], problem)

    async def _event(self, observed: Observed, warning: bool, reason: str, note: str) -> None:
        """Post an event; a refusal is logged and does not end the pass."""
        try:
            await self._writer.event(observed.raw, warning=warning, reason=reason, note=note)
        except ClusterError as error:
            log.warning("%s: %s (%s: %s)", observed.owner.name, error, reason, note)

    async def _forget(self, key: ServiceKey) -> None:
        """Drop the state of a service that is gone; the cluster deletes what it owned."""
        cache = self._caches.pop(key, None)
        self._metrics.forget(*key)
        if cache is not None:
            await self._workers.forget(cache.poll.uids)
        await self._workers.forget_service(key)


def _text(now: float) -> str:
    """Return a time in RFC 3339."""
    at = datetime.datetime.fromtimestamp(now, datetime.UTC)
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")
