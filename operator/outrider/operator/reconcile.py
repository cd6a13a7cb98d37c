"""One pass over one service: observe, decide, plan, apply. Level-triggered and idempotent.

Reads watch caches, asks the workers, and does only what differs; everything that it decides by is
in the cluster, so that it may be interrupted after any step. Wakes come from `watching`.
"""

import datetime
import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from outrider.client.errors import ClientError
from outrider.contract.settings import PolicySettings, Role
from outrider.operator import actions, loop, observations, status
from outrider.operator.actions import Apply, Delete, Foreign
from outrider.operator.cluster import Cluster
from outrider.operator.control import policy
from outrider.operator.control.memory import Memory
from outrider.operator.control.seen import Decision, Seen
from outrider.operator.control.settings import ControlSettings
from outrider.operator.desired import Desired, Intent, Surroundings, desired, role_spec, roles
from outrider.operator.differences import Applied
from outrider.operator.echoes import Echoes
from outrider.operator.fleet import Fleet
from outrider.operator.kinds import BY_NAME, ROLE_SCALER
from outrider.operator.loop import Looking
from outrider.operator.manifests.workloads import scaler
from outrider.operator.measured import Measured
from outrider.operator.naming import FIELD_MANAGER, role_name
from outrider.operator.observations import View
from outrider.operator.observed import Observed, Pod, observed
from outrider.operator.plan import control
from outrider.operator.replicas import first, replicas
from outrider.operator.spec import ScalingMode, SpecError, SpeculativeService, read_object
from outrider.operator.watching import Key, Watches

log = logging.getLogger(__name__)
SEED = f"{FIELD_MANAGER}-seed"
"""Field manager of a scaler's first number of replicas, which the operator never writes again."""


@dataclass(slots=True)
class Kept:
    """What a process keeps of one service between passes, and can do without."""

    looking: Looking = field(default_factory=Looking)
    echoes: Echoes = field(default_factory=Echoes)
    conditions: dict[str, str] = field(default_factory=dict)
    said: str = ""
    """The last pass's sentence."""


class Reconciler:
    """Makes the cluster as its services describe it."""

    def __init__(
        self,
        cluster: Cluster,
        watches: Watches,
        fleet: Fleet,
        measured: Measured,
        around: Surroundings,
    ) -> None:
        self._cluster = cluster
        self._watches = watches
        self._fleet = fleet
        self._measured = measured
        self._around = around
        self._applied = Applied()
        self._kept: dict[Key, Kept] = {}

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
        raw = self._watches.service(key)
        if raw is None or "deletionTimestamp" in raw["metadata"]:
            await self._forget(key)
            return None
        kept = self._kept.setdefault(key, Kept())
        raw, *children = kept.echoes.over([raw, *self._watches.children(key)], time.monotonic())
        seen = observed(raw, children, self._watches.pods(key))
        try:
            service = read_object(raw)
        except SpecError as error:
            await self._report_invalid(seen, kept, str(error))
            return None
        seconds = float(service.spec.speculation.control.interval_seconds)
        await self._look(seen, kept.looking, seconds)
        view, wanted = await self._apply(seen, service, kept)
        await self._push(view)
        await self._report(view, wanted, kept)
        return seconds

    async def _look(self, seen: Observed, looking: Looking, seconds: float) -> None:
        """Asks the workers, if it is time or there are others."""
        now = time.time()
        if looking.due(seen, now, seconds):
            whole = now - looking.asked_at >= seconds
            looking.take(seen, await self._fleet.reports(seen.pods), now, whole)

    async def _apply(
        self, seen: Observed, service: SpeculativeService, kept: Kept
    ) -> tuple[View, Desired]:
        """Decides, and makes the children so; what is remembered comes first among them."""
        now = time.time()
        settings = control(service)
        found = loop.seen_by_loop(seen, service, kept.looking, now)
        memory = self._recall(seen, settings, kept.looking, now)
        decision = policy.decide(settings, memory, found, now)
        numbers = {role: replicas(seen, service, role, decision) for role in roles(service)}
        told = loop.policy_for(seen, service, decision)
        intent = Intent(policy=told, memory=decision.memory.dumps())
        wanted = desired(seen.owner, service, numbers, intent, self._around)
        foreign = []
        await self._seed(seen, service)
        for action in actions.changes(seen, wanted.objects, self._applied):
            if isinstance(action, Foreign):
                foreign.append(f"{action.live['kind']} {action.live['metadata']['name']}")
            else:
                await self._do(action, seen, kept)
        await self._announce(seen, decision)
        view = View(seen, service, kept.looking, decision, found.window, tuple(foreign))
        return view, wanted

    def _recall(
        self, seen: Observed, settings: ControlSettings, looking: Looking, now: float
    ) -> Memory:
        present = loop.present(seen, looking)
        memory, problem = policy.recall(seen.memory, settings, now, present)
        if problem is not None:
            log.warning("%s: %s; it starts anew", seen.owner.name, problem)
        return memory

    async def _seed(self, seen: Observed, service: SpeculativeService) -> None:
        """Makes a role's scaler with the replicas that run now; afterwards others own them."""
        for role in roles(service):
            key = (ROLE_SCALER.name, role_name(seen.owner.name, role))
            external = role_spec(service, role).scaling.mode.value == ScalingMode.EXTERNAL
            if external and key not in seen.children:
                number = first(seen, service, role)
                await self._cluster.apply(scaler(seen.owner, role, number), manager=SEED)

    async def _do(self, action: Apply | Delete, seen: Observed, kept: Kept) -> None:
        if isinstance(action, Apply):
            answer = await self._cluster.apply(action.wanted)
            self._applied.learn(action.wanted, answer)
            key = (action.wanted["kind"], action.wanted["metadata"]["name"])
            kept.echoes.wrote(seen.children.get(key), answer, time.monotonic())
            return
        meta = action.live["metadata"]
        kind = BY_NAME[action.live["kind"]]
        await self._cluster.delete(kind, meta["namespace"], meta["name"], meta["uid"])
        self._applied.forget(action.live)
        kept.echoes.gone(action.live)

    async def _push(self, view: View) -> None:
        """Gives every target the policy in force, where it has another one."""
        told = loop.policy_for(view.seen, view.service, view.decision)
        for pod in view.seen.pods_of(Role.TARGET):
            if pod.running and loop.outdated(view.looking, pod, told):
                await self._tell(view, pod, told)

    async def _tell(self, view: View, pod: Pod, told: PolicySettings) -> None:
        try:
            view.looking.learn(pod, await self._fleet.push(pod, told))
        except ClientError as error:
            log.warning("%s did not take policy %d: %s", pod.name, told.version, error)

    async def _announce(self, seen: Observed, decision: Decision) -> None:
        for happened in decision.transitions:
            self._measured.decisions.labels(
                seen.owner.namespace, happened.change.value, decision.reason.value
            ).inc()
            await self._event(seen, False, happened.change.value, happened.sentence)

    async def _report(self, view: View, wanted: Desired, kept: Kept) -> None:
        """Writes the status where it differs, and the pass in one sentence where it is another."""
        seen = view.seen
        content = status.status(view, wanted, _now())
        if content != seen.status:
            await self._write_status(seen, kept, content)
            for one in status.told(seen, content):
                await self._event(seen, one.warning, one.reason, one.note)
        for role in roles(view.service):
            for_scaler = status.scaler_status(seen, role)
            if for_scaler is not None:
                await self._cluster.apply_status(for_scaler)
        sentence = view.decision.sentence
        if sentence != kept.said:
            log.info("%s/%s: %s", seen.owner.namespace, seen.owner.name, sentence)
            kept.said = sentence
        kept.conditions = {c["type"]: c["status"] for c in content["conditions"]}
        self._measured.count_resources(k.conditions for k in self._kept.values())
        age = loop.age(view.seen, view.looking, time.time())
        if age is not None:
            self._measured.metrics_age.labels(seen.owner.namespace, seen.owner.name).set(age)

    async def _write_status(self, seen: Observed, kept: Kept, content: Mapping[str, Any]) -> None:
        answer = await self._cluster.apply_status(status.whole(seen, content))
        kept.echoes.wrote(seen.raw, answer, time.monotonic())

    async def _report_invalid(self, seen: Observed, kept: Kept, problem: str) -> None:
        """Says what cannot be read; pods are left as they are."""
        found = status.dated(observations.invalid(problem), seen, _now())
        others = [c for c in seen.status.get("conditions", ()) if c["type"] != found[0]["type"]]
        content = {**seen.status, "observedGeneration": seen.generation}
        content["conditions"] = [*others, *found]
        if content != seen.status:
            await self._write_status(seen, kept, content)
            await self._event(seen, True, found[0]["reason"], problem)

    async def _event(self, seen: Observed, warning: bool, reason: str, note: str) -> None:
        await self._cluster.event(seen.raw, warning=warning, reason=reason, note=note)

    async def _forget(self, key: Key) -> None:
        """The service is gone, or goes: the cluster deletes what it owned."""
        self._kept.pop(key, None)
        self._measured.forget(*key)
        await self._fleet.forget(self._alive())

    def _alive(self) -> Iterable[str]:
        return [pod.split()[0] for kept in self._kept.values() for pod in kept.looking.pods]


def _now() -> str:
    now = datetime.datetime.now(datetime.UTC)
    return now.isoformat(timespec="seconds").replace("+00:00", "Z")


__all__ = ["Kept", "Reconciler", "Seen"]
