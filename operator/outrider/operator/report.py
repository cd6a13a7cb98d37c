"""Reports of passes: a service's status and its scalers', events, and one sentence in the log.

A write that fails is returned and stops no other. Leaves what is in a status to `status`, and when
to try again to `reconcile`.
"""

import asyncio
import datetime
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from outrider.contract.settings import Role
from outrider.operator import status
from outrider.operator.admission import advice
from outrider.operator.cluster.client import INVALID, ClusterError
from outrider.operator.cluster.own_writes import OwnWrites
from outrider.operator.control.inputs import Decision, Transition
from outrider.operator.interfaces import ClusterWriter
from outrider.operator.manifests.desired import Desired, roles
from outrider.operator.observed import Object, Observed, child_key
from outrider.operator.server.metrics import OperatorMetrics
from outrider.operator.status import StatusEvent
from outrider.operator.view import ConditionState, View
from outrider.operator.workers.poll import metrics_age

log = logging.getLogger(__name__)
REFUSED = "StatusRefused"
"""Reason of the event that says why a status cannot be written, in the server's words."""
AT_ONCE = 25
"""Events of one service that may come one after the other, so that a pod whose readiness comes and
goes fills no event store (client-go's EventSourceObjectSpamFilter)."""
SECONDS = 300.0
"""Time after which there may be one more."""


@dataclass(slots=True)
class EventBudget:
    """Token bucket of one service's events."""

    _left: float = AT_ONCE
    _at: float = 0.0
    """Time to which `_left` belongs."""

    def take(self, now: float) -> bool:
        """Return True if an event may be posted at the time `now`, in seconds, and count it."""
        self._left = min(AT_ONCE, self._left + max(0.0, now - self._at) / SECONDS)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


@dataclass(slots=True)
class Reported:
    """What was last reported of one service; lost with the process."""

    conditions: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Status and reason of each condition."""
    written_at: float = 0.0
    """When the status was last written, by the reporter's clock."""
    sentence: str = ""
    """The sentence that was logged last."""
    transitions: tuple[Transition, ...] = ()
    """What the control loop decided on in the last pass."""
    events: EventBudget = field(default_factory=EventBudget)
    advice: frozenset[tuple[int, str]] = frozenset()
    """Advice that was an event, and the generation that it was on: the status that has it may have
    been refused."""
    refused: str = ""
    """Why the status was last refused, in the server's words."""


@dataclass(frozen=True, slots=True)
class StatusReporter:
    """Writes what passes report."""

    writer: ClusterWriter
    metrics: OperatorMetrics
    clock: Callable[[], float]
    """Gives seconds since the epoch."""

    async def report(
        self, view: View, wanted: Desired, reported: Reported, own_writes: OwnWrites
    ) -> list[ClusterError]:
        """Write the statuses where they differ, and log the sentence of the pass where it is new;
        return why some could not be written."""
        self._log(view, reported)
        scalers = (self._scaler(view, role, wanted, own_writes) for role in roles(view.service))
        return await together(self._service(view, wanted, reported, own_writes), *scalers)

    async def report_problem(
        self,
        observed: Observed,
        found: Sequence[ConditionState],
        reported: Reported,
        own_writes: OwnWrites,
    ) -> list[ClusterError]:
        """Report conditions that keep a pass from all else; what else was observed is left as it
        is. Return why it could not be written."""

        async def write() -> None:
            changed = status.with_times(found, observed, _text(self.clock()))
            types = {condition["type"] for condition in changed}
            others = [c for c in observed.status.get("conditions", ()) if c["type"] not in types]
            content = {**observed.status, "observedGeneration": observed.generation}
            content["conditions"] = [*changed, *others]
            if written := await self._write(observed, content, reported, own_writes):
                await self._events(observed, status.status_events(observed, written), reported)

        return await together(write())

    async def announce(self, observed: Observed, decision: Decision, reported: Reported) -> None:
        """Post an event for each change that the control loop decided on; one that was not carried
        out, and is decided on again in each pass, is said once."""
        new = [one for one in decision.transitions if one not in reported.transitions]
        reported.transitions = decision.transitions
        for transition in new:
            self.metrics.decisions.labels(
                observed.owner.namespace, transition.change.value, decision.reason.value
            ).inc()
            event = StatusEvent(False, transition.change.value, transition.sentence)
            await self._events(observed, [event], reported)

    async def _service(
        self, view: View, wanted: Desired, reported: Reported, own_writes: OwnWrites
    ) -> None:
        """Write the status where it differs, and post the events that follow from it."""
        observed = view.observed
        content = status.status(view, wanted, _text(view.now))
        events: list[StatusEvent] = []
        if written := await self._write(observed, content, reported, own_writes):
            events += status.status_events(observed, written)
        events += (StatusEvent(True, advice.REASON, note) for note in _new_advice(view, reported))
        await self._events(observed, events, reported)

    async def _scaler(self, view: View, role: Role, wanted: Desired, own_writes: OwnWrites) -> None:
        content = status.scaler_status(view.observed, role, wanted)
        if content is not None:
            live = view.observed.children[child_key(content)]
            await self._store(content, live, own_writes)

    async def _write(
        self,
        observed: Observed,
        content: status.Object,
        reported: Reported,
        own_writes: OwnWrites,
    ) -> Mapping[str, Any]:
        """Write the status if it differs and is due; return what was written, empty: nothing."""
        reported.conditions = {c["type"]: (c["status"], c["reason"]) for c in content["conditions"]}
        now, due = self.clock(), reported.written_at + status.PERCENT_SECONDS
        if content == observed.status or (
            now < due and not status.differs_in_facts(content, observed.status)
        ):
            return {}
        reported.written_at = now
        wanted = status.status_object(observed, content)
        try:
            return await self._store(wanted, observed.raw, own_writes)
        except ClusterError as error:
            if error.status == INVALID and error.reason != reported.refused:
                reported.refused = error.reason
                await self._event(observed, StatusEvent(True, REFUSED, error.reason))
            raise

    async def _store(
        self, wanted: status.Object, live: Object, own_writes: OwnWrites
    ) -> Mapping[str, Any]:
        """Apply a status; return what was written, empty if the object is gone, which starts
        another pass anyway."""
        try:
            answer = await self.writer.apply_status(wanted)
        except ClusterError as error:
            if error.gone:
                return {}
            raise
        own_writes.learn(child_key(live), live, answer)
        content: Mapping[str, Any] = wanted["status"]
        return content

    async def _events(
        self, observed: Observed, events: Iterable[StatusEvent], reported: Reported
    ) -> None:
        """Post events; those that are too many are in the log alone."""
        posted = []
        for one in events:
            if reported.events.take(self.clock()):
                posted.append(self._event(observed, one))
            else:
                name, words = observed.owner.name, "%s: no event, there were too many: %s: %s"
                log.warning(words, name, one.reason, one.note)
        await asyncio.gather(*posted)

    async def _event(self, observed: Observed, event: StatusEvent) -> None:
        """Post an event; one that is refused is logged, and costs nothing else."""
        warning, reason, note = event.warning, event.reason, event.note
        try:
            await self.writer.event(observed.raw, warning=warning, reason=reason, note=note)
        except ClusterError as error:
            log.warning("%s: %s (%s: %s)", observed.owner.name, error, reason, note)

    def _log(self, view: View, reported: Reported) -> None:
        owner, sentence = view.observed.owner, view.decision.sentence
        if sentence != reported.sentence:
            log.info("%s/%s: %s", owner.namespace, owner.name, sentence)
            reported.sentence = sentence
        age = metrics_age(view.observed, view.poll, view.now)
        if age is not None:
            self.metrics.metrics_age.labels(owner.namespace, owner.name).set(age)


async def together(*writes: Coroutine[Any, Any, None]) -> list[ClusterError]:
    """Await all writes, whatever becomes of the others; return why some failed."""
    outcomes = await asyncio.gather(*writes, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException) and not isinstance(outcome, ClusterError):
            raise outcome
    return [outcome for outcome in outcomes if isinstance(outcome, ClusterError)]


def _new_advice(view: View, reported: Reported) -> list[str]:
    """Return the advice that is to be an event, and remember it."""
    old, generation = view.observed.status, view.observed.generation
    known = old.get("advice", ()) if old.get("observedGeneration") == generation else ()
    said = status.said(view)
    new = [n for n in said if n not in known and (generation, n) not in reported.advice]
    reported.advice = frozenset((generation, note) for note in said)
    return new


def _text(now: float) -> str:
    """Return a time in RFC 3339."""
    at = datetime.datetime.fromtimestamp(now, datetime.UTC)
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")
