"""The status of a service as it is applied, and which of its changes are worth an event. Pure.

Written only where it differs from what is there; a condition keeps its time while it holds.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outrider.contract.ports import HTTP
from outrider.contract.settings import Role
from outrider.operator.actions import ours
from outrider.operator.compute_conditions import ConditionState, View, conditions
from outrider.operator.conditions import ConditionType
from outrider.operator.desired import Desired, roles
from outrider.operator.kinds import ROLE_SCALER, SERVICE
from outrider.operator.loop import ready
from outrider.operator.naming import role_name, selector_text
from outrider.operator.observed import Observed

Object = dict[str, Any]
WORDS = {True: "True", False: "False", None: "Unknown"}
LOUD = (ConditionType.READY, ConditionType.LINK_ESTABLISHED, ConditionType.DEGRADED)
"""Conditions whose changes are events; those of speculation are the loop's own."""
COARSE = 5
"""Percentages are rounded to this, and so rarely written."""
FIGURES_SECONDS = 60.0
"""Least time between two writes for the sake of the figures alone; each means one more pass. Under
traffic that varies by 8 %, 3.0 writes per service and minute became 1.05 (`bench.operator`)."""
MAX_MESSAGE = 1024
MAX_RESOURCES = 16
FIGURES = ("gainPercent", "hitPercent")


@dataclass(frozen=True, slots=True)
class Told:
    """One event about a condition."""

    warning: bool
    reason: str
    note: str


def status(view: View, wanted: Desired, now: str) -> Object:
    """The whole status; `now` is an RFC 3339 time for what has just changed."""
    owner, old = view.seen.owner, view.seen.status
    content: Object = {
        "observedGeneration": view.seen.generation,
        "conditions": dated(conditions(view), view.seen, now),
        "speculation": _speculation(view, old.get("speculation", {}), now),
        "url": f"http://{owner.name}.{owner.namespace}.svc:{HTTP}",
        "resources": [
            {"kind": one["kind"], "name": one["metadata"]["name"]}
            for one in wanted.objects[:MAX_RESOURCES]
        ],
    }
    for role in roles(view.service):
        content[role.value] = _role(view.seen, role, wanted)
    return content


def dated(found: Sequence[ConditionState], seen: Observed, now: str) -> list[Object]:
    """Conditions as the API has them; the time of each is that of its last change of status."""
    old = {c["type"]: c for c in seen.status.get("conditions", ())}
    return [_dated(one, old.get(one.type.value, {}), seen.generation, now) for one in found]


def whole(seen: Observed, content: Mapping[str, Any]) -> Object:
    """The object that is applied to the status subresource."""
    return {
        "apiVersion": SERVICE.api_version,
        "kind": SERVICE.name,
        "metadata": {"name": seen.owner.name, "namespace": seen.owner.namespace},
        "status": dict(content),
    }


def of_scaler(seen: Observed, role: Role, wanted: Desired) -> Object | None:
    """What an autoscaler reads of a role, as it is applied; None where that is there already."""
    live = seen.children.get((ROLE_SCALER.name, role_name(seen.owner.name, role)))
    if live is None or not ours(live, seen):
        return None
    content = {
        "observedGeneration": live["metadata"]["generation"],
        "replicas": len(seen.pods_of(role)),
        "selector": selector_text(wanted.selectors[role]),
    }
    meta = {"name": live["metadata"]["name"], "namespace": seen.owner.namespace}
    kind = {"apiVersion": ROLE_SCALER.api_version, "kind": ROLE_SCALER.name}
    return None if live.get("status") == content else {**kind, "metadata": meta, "status": content}


def urgent(content: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    """Whether more is new than the figures of speculation."""
    return _without_figures(content) != _without_figures(old)


def _without_figures(content: Mapping[str, Any]) -> Object:
    speculation = content.get("speculation", {})
    rest = {key: speculation[key] for key in speculation if key not in FIGURES}
    return {**content, "speculation": rest}


def told(seen: Observed, content: Mapping[str, Any]) -> Iterator[Told]:
    """Events for the conditions that people should hear of."""
    old = {c["type"]: c for c in seen.status.get("conditions", ())}
    for new in content["conditions"]:
        before = old.get(new["type"])
        if new["type"] not in LOUD or (before is None and new["status"] != "True"):
            continue
        if before is None or before["status"] != new["status"]:
            bad = "True" if new["type"] == ConditionType.DEGRADED else "False"
            reason = new["reason"] if new["status"] == bad else _good(new["type"])
            yield Told(new["status"] == bad, reason, new["message"])


def _good(kind: str) -> str:
    return "Recovered" if kind == ConditionType.DEGRADED else kind


def _dated(one: ConditionState, old: Mapping[str, Any], generation: int, now: str) -> Object:
    status = WORDS[one.holds]
    same = old.get("status") == status
    quiet = one.type is ConditionType.SPECULATION_ACTIVE and old.get("reason") == one.reason
    return {
        "type": one.type.value,
        "status": status,
        "reason": one.reason,
        "message": old.get("message", "") if same and quiet else one.message[:MAX_MESSAGE],
        "observedGeneration": generation,
        "lastTransitionTime": old["lastTransitionTime"] if same else now,
    }


def _role(seen: Observed, role: Role, made: Desired) -> Object:
    live = seen.workload(role)
    serving, wanted = len(ready(seen, role)), 0 if live is None else live.replicas
    return {
        "replicas": len(seen.pods_of(role)),
        "readyReplicas": serving,
        "updatedReplicas": 0 if live is None else live.updated,
        "desiredReplicas": wanted,
        "ready": f"{serving}/{wanted}",
        "selector": selector_text(made.selectors[role]),
        "revision": made.revisions[role],
    }


def _speculation(view: View, old: Mapping[str, Any], now: str) -> Object:
    decision, window = view.decision, view.window
    rows = decision.max_rows if decision.speculate else 0
    same = old.get("maxRows") == rows and "lastChangeTime" in old
    content: Object = {
        "maxRows": rows,
        "reason": old["reason"] if same else decision.sentence[:MAX_MESSAGE],
        "lastChangeTime": old["lastChangeTime"] if same else now,
    }
    figures = {
        "gainPercent": None if window is None else window.gain_percent,
        "hitPercent": None if window is None or window.hit_rate is None else 100 * window.hit_rate,
    }
    for name, percent in figures.items():
        figure = old.get(name) if percent is None else _coarse(percent, old.get(name))
        if figure is not None:  # what was last seen stays until there is something newer
            content[name] = figure
    return content


def _coarse(percent: float, old: int | None) -> int:
    """The old figure as long as it is nearly right: a status is not a metric."""
    if old is not None and abs(percent - old) < COARSE:
        return old
    return COARSE * round(percent / COARSE)
