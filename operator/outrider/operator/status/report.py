"""Reports of one service's passes: its status and its scalers', events, and a sentence in the log.

A write that fails is returned and stops no other. Leaves what is in a status to `content`, and when
to try again to `reconcile`.
"""

import asyncio
import datetime
import logging
import math
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from outrider.operator.admission import advice
from outrider.operator.cluster.client import INVALID, ClusterError
from outrider.operator.cluster.interfaces import ClusterWriter
from outrider.operator.cluster.own_writes import OwnWrites
from outrider.operator.control.inputs import Transition
from outrider.operator.manifests.desired import roles
from outrider.operator.observed.service import Object, Observed, child_key
from outrider.operator.server.metrics import OperatorMetrics
from outrider.operator.status.content import (
    PERCENT_SECONDS,
    differs_in_facts,
    scaler_status,
    status,
    status_object,
    with_times,
)
from outrider.operator.status.events import StatusEvent, status_events
from outrider.operator.status.view import ConditionState, View
from outrider.operator.work_queue import Retry
from outrider.operator.workers.poll import metrics_age

log = logging.getLogger(__name__)
LOG_SECONDS = 60.0
"""Seconds between two sentences that say the same with other numbers."""
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
class StatusReporter:
    """Writes what passes over one service report; what it remembers is lost with the process."""

    writer: ClusterWriter
    metrics: OperatorMetrics
    clock: Callable[[], float]
    """Gives seconds since the epoch."""
    own_writes: OwnWrites
    conditions: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Status and reason of each condition."""
    is_current: bool = False
    """True if the last pass found every status as it was to be."""
    _written_at: float = 0.0
    """When the status was last written, by the reporter's clock."""
    _sentence: str = ""
    """The sentence that was logged last."""
    _logged_at: float = -math.inf
    _transitions: tuple[Transition, ...] = ()
    """What the control loop decided on in the last pass."""
    _budget: EventBudget = field(default_factory=EventBudget)
    _advice: frozenset[tuple[int, str]] = frozenset()
    """Advice that was an event, and the generation that it was on: the status that has it may have
    been refused."""
    _refused: str = ""
    """Why the status was last refused, in the server's words."""

    async def report(self, view: View) -> list[ClusterError]:
        """Write the statuses where they differ; return why some could not be written."""
        scalers = [scaler_status(view, role) for role in roles(view.service)]
        behind = [one for one in scalers if one is not None]
        content = status(view, _text(view.now))
        self.is_current = content == view.observed.status and not behind
        writes = (self._store(one, view.observed.children[child_key(one)]) for one in behind)
        return await together(self._service(view, content), *writes)

    async def report_problem(
        self, observed: Observed, found: Sequence[ConditionState]
    ) -> list[ClusterError]:
        """Report conditions that keep a pass from all else; what else was observed is left as it
        is. Return why it could not be written."""

        async def write() -> None:
            changed = with_times(found, observed, _text(self.clock()))
            types = {condition["type"] for condition in changed}
            others = [c for c in observed.status.get("conditions", ()) if c["type"] not in types]
            content = {**observed.status, "observedGeneration": observed.generation}
            content["conditions"] = [*changed, *others]
            if written := await self._write(observed, content):
                await self._events(observed, status_events(observed, written))

        self.is_current = False
        return await together(write())

    async def announce(self, view: View) -> None:
        """Post an event for each change that the control loop decided on; one that was not carried
        out, and is decided on again in each pass, is said once."""
        observed, decision = view.observed, view.decision
        new = [one for one in decision.transitions if one not in self._transitions]
        self._transitions = decision.transitions
        for transition in new:
            self.metrics.decisions.labels(
                observed.owner.namespace, transition.change.value, decision.reason.value
            ).inc()
            event = StatusEvent(False, transition.change.value, transition.sentence)
            await self._events(observed, [event])

    def log(self, view: View) -> None:
        """Log the sentence of a pass where it is new, but one with other numbers alone after a
        while; measure the age of its metrics."""
        owner, sentence = view.observed.owner, view.decision.sentence
        is_due = view.now - self._logged_at >= LOG_SECONDS
        if sentence != self._sentence and (is_due or _words(sentence) != _words(self._sentence)):
            log.info("%s/%s: %s", owner.namespace, owner.name, sentence)
            self._sentence, self._logged_at = sentence, view.now
        age = metrics_age(view.observed, view.poll, view.now)
        if age is not None:
            self.metrics.metrics_age.labels(owner.namespace, owner.name).set(age)

    def check(
        self,
        observed: Observed,
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
            namespace = observed.owner.namespace
            self.metrics.errors.labels(namespace, ClusterError.__name__).inc(len(errors))
            after = max((error.retry_after for error in unwritten), default=0.0)
            raise Retry("; ".join(dict.fromkeys(map(str, errors))), after, wait)

    async def _service(self, view: View, content: dict[str, Any]) -> None:
        """Write the status where it differs, and post the events that follow from it."""
        observed = view.observed
        events: list[StatusEvent] = []
        if written := await self._write(observed, content):
            events += status_events(observed, written)
        notes = self._new_advice(observed, content["advice"])
        events += (StatusEvent(True, advice.REASON, note) for note in notes)
        await self._events(observed, events)

    def _new_advice(self, observed: Observed, said: Sequence[str]) -> list[str]:
        """Return the advice that is to be an event, and remember it."""
        old, generation = observed.status, observed.generation
        known = old.get("advice", ()) if old.get("observedGeneration") == generation else ()
        new = [n for n in said if n not in known and (generation, n) not in self._advice]
        self._advice = frozenset((generation, note) for note in said)
        return new

    async def _write(self, observed: Observed, content: dict[str, Any]) -> Mapping[str, Any]:
        """Write the status if it differs and is due; return what was written, empty: nothing."""
        self.conditions = {c["type"]: (c["status"], c["reason"]) for c in content["conditions"]}
        now, due = self.clock(), self._written_at + PERCENT_SECONDS
        if content == observed.status or (
            now < due and not differs_in_facts(content, observed.status)
        ):
            return {}
        self._written_at = now
        wanted = status_object(observed, content)
        try:
            return await self._store(wanted, observed.raw)
        except ClusterError as error:
            if error.status == INVALID and error.reason != self._refused:
                self._refused = error.reason
                await self._event(observed, StatusEvent(True, REFUSED, error.reason))
            raise

    async def _store(self, wanted: dict[str, Any], live: Object) -> Mapping[str, Any]:
        """Apply a status; return what was written, empty if the object is gone, which starts
        another pass anyway."""
        try:
            answer = await self.writer.apply_status(wanted)
        except ClusterError as error:
            if error.gone:
                return {}
            raise
        self.own_writes.learn(child_key(live), live, answer)
        content: Mapping[str, Any] = wanted["status"]
        return content

    async def _events(self, observed: Observed, events: Iterable[StatusEvent]) -> None:
        """Post events; those that are too many are in the log alone."""
        posted = []
        for one in events:
            if self._budget.take(self.clock()):
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


async def together(*writes: Coroutine[Any, Any, object]) -> list[ClusterError]:
    """Await all writes, whatever becomes of the others; return why some failed."""
    outcomes = await asyncio.gather(*writes, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException) and not isinstance(outcome, ClusterError):
            raise outcome
    return [outcome for outcome in outcomes if isinstance(outcome, ClusterError)]


def _text(now: float) -> str:
    """Return a time in RFC 3339."""
    at = datetime.datetime.fromtimestamp(now, datetime.UTC)
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")


def _words(sentence: str) -> str:
    """Return a sentence without its numbers."""
    return re.sub(r"[0-9.]+", "", sentence)
