"""Events that follow from the changes of a status. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from outrider.contract.settings import Role
from outrider.operator.naming import restart_command
from outrider.operator.observed.service import Observed
from outrider.operator.spec.conditions import ConditionType, ReadyReason

EVENT_CONDITIONS = (ConditionType.READY, ConditionType.LINK_ESTABLISHED, ConditionType.DEGRADED)
"""Conditions whose changes are events; events about speculation come from the control loop."""
ROLLED_OUT = "RolledOut"
"""Reason of the event that ends a rollout."""
UPGRADE_WAITS = "UpgradeWaits"
"""Reason of the event that says that pods are kept as another version made them."""
ROLLOUT_REASONS = frozenset((ReadyReason.ROLLING_OUT, ReadyReason.ROLLOUT_FAILED))


@dataclass(frozen=True, slots=True)
class StatusEvent:
    """One event about a condition."""

    warning: bool
    reason: str
    note: str


def status_events(observed: Observed, content: Mapping[str, Any]) -> Iterator[StatusEvent]:
    """Yield an event for each problem that has come, changed its reason or ended, and for each
    rollout that has begun or is complete."""
    old = {c["type"]: c for c in observed.status.get("conditions", ())}
    for new in content["conditions"]:
        before = old.get(new["type"])
        is_bad = new["status"] == _bad(new["type"])
        if _is_told(new) and _has_changed(new, before, is_bad):
            reason = new["reason"] if is_bad else _good(new["type"])
            yield StatusEvent(is_bad, reason, new["message"])
    yield from _rollout_events(observed, content)


def _rollout_events(observed: Observed, content: Mapping[str, Any]) -> Iterator[StatusEvent]:
    old, generation = observed.status, observed.generation
    for role in Role:
        before, now = (one.get(role.value, {}).get("revision") for one in (old, content))
        if before and now and before != now:
            words = f"{role}: revision {now} replaces {before}"
            yield StatusEvent(False, ReadyReason.ROLLING_OUT, words)
        waited, waits = (one.get(role.value, {}).get("nextRevision") for one in (old, content))
        if waits and waits != waited:
            words = f"{role}: this version of the operator would make revision {waits}; its pods"
            words += f" stay at {now} until you replace them: {restart_command(*observed.key)}"
            yield StatusEvent(False, UPGRADE_WAITS, words)
    complete = content.get("rolledOutGeneration") == generation
    begun = old.get("observedGeneration") == generation != old.get("rolledOutGeneration")
    if complete and begun:
        yield StatusEvent(False, ROLLED_OUT, f"generation {generation} is rolled out")


def _is_told(new: Mapping[str, Any]) -> bool:
    """True if a condition is an event where it changes; rollouts have events of their own."""
    if new["type"] == ConditionType.READY and new["reason"] in ROLLOUT_REASONS:
        return False
    return new["type"] in EVENT_CONDITIONS


def _has_changed(new: Mapping[str, Any], before: Mapping[str, Any] | None, is_bad: bool) -> bool:
    if before is None or new["status"] == "Unknown":
        return bool(new["status"] == "True")
    return bool(before["status"] != new["status"] or (is_bad and before["reason"] != new["reason"]))


def _bad(kind: str) -> str:
    return "True" if kind == ConditionType.DEGRADED else "False"


def _good(kind: str) -> str:
    return "Recovered" if kind == ConditionType.DEGRADED else kind
