"""One pass over one service: observe, decide, plan, apply. Level-triggered and idempotent.

Reads watch caches, asks the workers, and does only what differs; everything that it decides by is
in the cluster, so that it may be interrupted after any step. Wakes come from `watching`.
"""

import asyncio
import datetime
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from outrider.client.errors import ClientError
from outrider.contract.settings import PolicySettings, Role
from outrider.operator import advice, compute_conditions, loop, status
from outrider.operator.apply import Maker
from outrider.operator.cluster import ClusterError
from outrider.operator.compute_conditions import View
from outrider.operator.control import policy
from outrider.operator.control.inputs import Decision, Seen
from outrider.operator.control.memory import Memory
from outrider.operator.control.settings import ControlSettings
from outrider.operator.desired import Desired, Intent, Surroundings, desired, roles, unserved
from outrider.operator.differences import Applied
from outrider.operator.interfaces import Hand, Key, Sight, Workers
from outrider.operator.kinds import CONFIG_MAP
from outrider.operator.loop import Looking
from outrider.operator.metrics import Measured
from outrider.operator.naming import intent_name
from outrider.operator.observed import Object, Observed, Pod, child_key, observed
from outrider.operator.own_writes import Written
from outrider.operator.plan import control
from outrider.operator.reading import Reading
from outrider.operator.replica_ownership import Contests, left_alone
from outrider.operator.replicas import replicas, seeds
from outrider.operator.spec import SpecError, SpeculativeService

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Kept:
    """What a process keeps of one service between passes, and can do without."""

    looking: Looking = field(default_factory=Looking)
    applied: Applied = field(default_factory=Applied)
    written: Written = field(default_factory=Written)
    conditions: dict[str, str] = field(default_factory=dict)
    figures_at: float = 0.0
    """When the status was last written, by the reconciler's clock."""
    said: str = ""
    """The last pass's sentence."""
    description: Reading = field(default_factory=Reading)
    contests: Contests = field(default_factory=dict)


class Reconciler:
    """Makes the cluster as its services describe it."""

    def __init__(
        self,
        hand: Hand,
        sight: Sight,
        workers: Workers,
        measured: Measured,
        around: Surroundings,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`clock` gives seconds since the epoch."""
        self._hand = hand
        self._sight = sight
        self._workers = workers
        self._measured = measured
        self._around = around
        self._clock = clock
        self._kept: dict[Key, Kept] = {}
        measured.services = lambda: (kept.conditions for kept in self._kept.values())

    def new(self, key: Key) -> bool:
        """Whether a pass has everything to make: it asks the API server more than ten others."""
        return self._sight.service(key) is not None and not any(self._sight.children(key))

    async def reconcile(self, key: Key) -> float | None:
        """One pass; returns the seconds until the next at the latest, None where there is none."""
        began = time.monotonic()
        try:
            seconds = await self._pass(key)
        except Exception as error:
            self._measured.passes.labels(key[0], "error").inc()
            self._measured.errors.labels(key[0], type(error).__name__).inc()
            raise
        self._measured.passes.labels(key[0], "ok").inc()
        self._measured.seconds.observe(time.monotonic() - began)
        return seconds

    async def _pass(self, key: Key) -> float | None:
        raw = self._sight.service(key)
        if raw is None or "deletionTimestamp" in raw["metadata"]:
            await self._forget(key)
            return None
        kept = self._kept.setdefault(key, Kept())
        seen = self._observe(key, raw, kept.written)
        try:
            service = kept.description.read(seen.raw)
        except SpecError as error:
            await self._report_invalid(seen, str(error), kept)
            return None
        seconds = float(service.spec.speculation.control.interval_seconds)
        await self._look(seen, kept.looking, seconds)
        others = left_alone(seen, service, kept.contests, self._clock())
        decision, found = self._decide(seen, service, kept.looking, Role.DRAFT in others)
        view, wanted = await self._make(seen, service, kept, decision, found, others)
        if view.made.holds((CONFIG_MAP.name, intent_name(seen.owner.name))):  # it is stored
            await asyncio.gather(self._announce(seen, decision), self._push(view))
        await self._report(view, wanted, kept)
        return kept.looking.wait(seen, self._clock(), seconds)

    def _observe(self, key: Key, raw: Object, written: Written) -> Observed:
        """What the watches have told, and what was written meanwhile."""
        cached = {child_key(one): one for one in (raw, *self._sight.children(key))}
        newest = written.over(cached)
        service = newest.pop(child_key(raw))
        return observed(service, newest.values(), self._sight.pods(key), self._clock())

    async def _look(self, seen: Observed, looking: Looking, seconds: float) -> None:
        """Asks the workers, if it is time or there are others."""
        now = self._clock()
        if looking.due(seen, now, seconds):
            whole, before = now - looking.asked_at >= seconds, looking.uids
            looking.take(seen, await self._workers.reports(seen.pods), now, whole)
            await self._workers.forget(before - looking.uids)

    def _decide(
        self, seen: Observed, service: SpeculativeService, looking: Looking, contested: bool
    ) -> tuple[Decision, Seen]:
        now = self._clock()
        settings = control(service)
        found = loop.seen_by_loop(seen, service, looking, contested, now)
        memory = self._recall(seen, settings, looking, now)
        return policy.decide(settings, memory, found, now), found

    def _recall(
        self, seen: Observed, settings: ControlSettings, looking: Looking, now: float
    ) -> Memory:
        present = loop.present(seen, looking)
        memory, problem = policy.recall(seen.memory, settings, now, present)
        if problem is not None:
            log.warning("%s: %s; it starts anew", seen.owner.name, problem)
        return memory

    async def _make(
        self,
        seen: Observed,
        service: SpeculativeService,
        kept: Kept,
        decision: Decision,
        found: Seen,
        others: Mapping[Role, str],
    ) -> tuple[View, Desired]:
        """Makes the children so; what is remembered comes first among them."""
        numbers = {
            role: None if role in others else replicas(seen, service, role, decision)
            for role in roles(service)
        }
        told = loop.policy_for(seen, service, decision)
        intent = Intent(policy=told, memory=decision.memory.dumps())
        wanted = desired(seen.owner, service, numbers, intent, self._around, seen.standings)
        maker = Maker(self._hand, seen, kept.applied, kept.written)
        made = await maker.make(wanted.objects, seeds(seen, service))
        made.refused |= unserved(service, self._around)
        now = self._clock()
        view = View(seen, service, kept.looking, decision, found.window, made, now, others)
        return view, wanted

    async def _push(self, view: View) -> None:
        """Gives every target the policy in force, where it has another one."""
        told = loop.policy_for(view.seen, view.service, view.decision)
        pods = [pod for pod in view.seen.pods_of(Role.TARGET) if pod.running]
        view.looking.deaf &= {pod.uid for pod in pods}
        late = [pod for pod in pods if loop.outdated(view.looking, pod, told)]
        await asyncio.gather(*(self._tell(view, pod, told) for pod in late))

    async def _tell(self, view: View, pod: Pod, told: PolicySettings) -> None:
        deaf = view.looking.deaf
        try:
            view.looking.learn(pod, await self._workers.push(pod, told))
        except ClientError as error:
            if pod.uid not in deaf:
                log.warning("%s did not take policy %d: %s", pod.name, told.version, error)
            deaf.add(pod.uid)
        else:
            if pod.uid in deaf:
                log.info("%s takes policies again: %d", pod.name, told.version)
            deaf.discard(pod.uid)

    async def _announce(self, seen: Observed, decision: Decision) -> None:
        for happened in decision.transitions:
            self._measured.decisions.labels(
                seen.owner.namespace, happened.change.value, decision.reason.value
            ).inc()
            await self._event(seen, False, happened.change.value, happened.sentence)

    async def _report(self, view: View, wanted: Desired, kept: Kept) -> None:
        """Writes the status where it differs, and the pass in one sentence where it is another."""
        seen = view.seen
        content = status.status(view, wanted, _text(view.now))
        told: list[status.Told] = []
        if await self._write_status(seen, content, kept):
            told += status.told(seen, content)
        if seen.status.get("observedGeneration") != seen.generation:
            told += (status.Told(True, advice.REASON, note) for note in advice.on(view.service))
        await asyncio.gather(
            *(self._report_scaler(seen, role, wanted, kept) for role in roles(view.service)),
            *(self._event(seen, one.warning, one.reason, one.note) for one in told),
        )
        self._say(view, kept)

    def _say(self, view: View, kept: Kept) -> None:
        owner, sentence = view.seen.owner, view.decision.sentence
        if sentence != kept.said:
            log.info("%s/%s: %s", owner.namespace, owner.name, sentence)
            kept.said = sentence
        age = loop.age(view.seen, view.looking, view.now)
        if age is not None:
            self._measured.metrics_age.labels(owner.namespace, owner.name).set(age)

    async def _write_status(self, seen: Observed, content: status.Object, kept: Kept) -> bool:
        """Whether there was anything to write."""
        kept.conditions = {c["type"]: c["status"] for c in content["conditions"]}
        now, due = self._clock(), kept.figures_at + status.FIGURES_SECONDS
        if content == seen.status or (now < due and not status.urgent(content, seen.status)):
            return False
        kept.figures_at = now
        return await self._store_status(status.whole(seen, content), seen.raw, kept)

    async def _report_scaler(self, seen: Observed, role: Role, wanted: Desired, kept: Kept) -> None:
        content = status.of_scaler(seen, role, wanted)
        if content is not None:
            await self._store_status(content, seen.children[child_key(content)], kept)

    async def _store_status(self, content: status.Object, live: Object, kept: Kept) -> bool:
        """Whether there was still an object to write it to; its deletion wakes the next pass."""
        try:
            answer = await self._hand.apply_status(content)
        except ClusterError as error:
            if error.gone:
                return False
            raise
        kept.written.learn(child_key(live), live, answer)
        return True

    async def _report_invalid(self, seen: Observed, problem: str, kept: Kept) -> None:
        """Says what cannot be read; pods are left as they are."""
        found = status.dated(compute_conditions.invalid(problem), seen, _text(self._clock()))
        types = {condition["type"] for condition in found}
        others = [c for c in seen.status.get("conditions", ()) if c["type"] not in types]
        content = {**seen.status, "observedGeneration": seen.generation}
        content["conditions"] = [*found, *others]
        if await self._write_status(seen, content, kept):
            await self._event(seen, True, found[-1]["reason"], problem)

    async def _event(self, seen: Observed, warning: bool, reason: str, note: str) -> None:
        """An event is worth no pass: one that is refused is logged."""
        try:
            await self._hand.event(seen.raw, warning=warning, reason=reason, note=note)
        except ClusterError as error:
            log.warning("%s: %s (%s: %s)", seen.owner.name, error, reason, note)

    async def _forget(self, key: Key) -> None:
        """The service is gone, or goes: the cluster deletes what it owned."""
        kept = self._kept.pop(key, None)
        self._measured.forget(*key)
        if kept is not None:
            await self._workers.forget(kept.looking.uids)


def _text(now: float) -> str:
    """A time as the API has it."""
    at = datetime.datetime.fromtimestamp(now, datetime.UTC)
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")
