"""Status of a service as it is applied, and events for its changes. Pure.

Written only where it differs from what is there; a condition keeps its time while its status stays.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outrider.contract.process import HTTP_PORT
from outrider.contract.settings import Role
from outrider.operator.admission import advice
from outrider.operator.apply import ours
from outrider.operator.cluster.kinds import ROLE_SCALER, SERVICE
from outrider.operator.compute_conditions import conditions, serving_drafts
from outrider.operator.conditions import ConditionType, ReadyReason
from outrider.operator.manifests.desired import Desired, roles
from outrider.operator.naming import restart_command, role_name, selector_text
from outrider.operator.observed import Observed
from outrider.operator.rollout_conditions import rolled_out_generation
from outrider.operator.spec.status import MAX_ADVICE, MAX_RESOURCES
from outrider.operator.view import ConditionState, View
from outrider.operator.workers.poll import ready

Object = dict[str, Any]
STATUS_WORDS = {True: "True", False: "False", None: "Unknown"}
EVENT_CONDITIONS = (ConditionType.READY, ConditionType.LINK_ESTABLISHED, ConditionType.DEGRADED)
"""Conditions whose changes are events; events about speculation come from the control loop."""
ROUNDING = 5
"""Percentages are rounded to multiples of this, so that they are rarely written."""
PERCENT_SECONDS = 60.0
"""Least time between two writes for the percentages alone; each write causes one more pass. Under
traffic that varies by 8 %, 3.0 writes per service and minute became 1.05 (`bench.operator`)."""
ROLLED_OUT = "RolledOut"
"""Reason of the event that ends a rollout."""
UPGRADE_WAITS = "UpgradeWaits"
"""Reason of the event that says that pods are kept as another version made them."""
ROLLOUT_REASONS = frozenset((ReadyReason.ROLLING_OUT, ReadyReason.ROLLOUT_FAILED))
MAX_MESSAGE = 1024
PERCENTAGES = ("gainPercent", "hitPercent")


@dataclass(frozen=True, slots=True)
class StatusEvent:
    """One event about a condition."""

    warning: bool
    reason: str
    note: str


def status(view: View, wanted: Desired, now: str) -> Object:
    """Return the whole status; `now` is an RFC 3339 time for what has just changed."""
    owner, old = view.observed.owner, view.observed.status
    scheme = "https" if view.service.spec.client_tls else "http"
    content: Object = {
        "observedGeneration": view.observed.generation,
        "rolledOutGeneration": rolled_out_generation(view),
        "conditions": with_times(conditions(view), view.observed, now),
        "speculation": _speculation(view, old.get("speculation", {}), now),
        "url": f"{scheme}://{owner.name}.{owner.namespace}.svc:{HTTP_PORT}",
        "resources": [
            {"kind": one["kind"], "name": one["metadata"]["name"]}
            for one in wanted.objects[:MAX_RESOURCES]
        ],
        "advice": said(view),
    }
    for role in roles(view.service):
        content[role.value] = _role(view.observed, role, wanted)
    if view.service.spec.same_pod:
        content[Role.DRAFT.value] = _same_pod_draft(view, content[Role.TARGET.value])
    return content


def said(view: View) -> list[str]:
    """Return the advice on a service, as much as its status holds: first the fields that are
    ignored."""
    every = (
        *advice.on_rival(view.rival),
        *view.removed_fields,
        *advice.on_unknown(view.unknown_fields),
        *advice.on_unguarded(view.service, any(view.certificates.values())),
        *advice.on_former_secrets(view.observed.owner, view.certificates, view.observed.carriers),
        *advice.on(view.service),
    )
    return [sentence[:MAX_MESSAGE] for sentence in every[:MAX_ADVICE]]


def with_times(found: Sequence[ConditionState], observed: Observed, now: str) -> list[Object]:
    """Return conditions as the API has them; the time of each is its last change of status."""
    old = {c["type"]: c for c in observed.status.get("conditions", ())}
    return [_with_time(one, old.get(one.type.value, {}), observed.generation, now) for one in found]


def status_object(observed: Observed, content: Mapping[str, Any]) -> Object:
    """Return the object that is applied to the status subresource."""
    return {
        "apiVersion": SERVICE.api_version,
        "kind": SERVICE.name,
        "metadata": {"name": observed.owner.name, "namespace": observed.owner.namespace},
        "status": dict(content),
    }


def scaler_status(observed: Observed, role: Role, wanted: Desired) -> Object | None:
    """Return the status of a role's scaler as it is applied; None where it is there already."""
    live = observed.children.get((ROLE_SCALER.name, role_name(observed.owner.name, role)))
    if live is None or not ours(live, observed):
        return None
    content = {
        "observedGeneration": live["metadata"]["generation"],
        "replicas": len(observed.pods_of(role)),
        "selector": selector_text(wanted.selectors[role]),
    }
    meta = {"name": live["metadata"]["name"], "namespace": observed.owner.namespace}
    kind = {"apiVersion": ROLE_SCALER.api_version, "kind": ROLE_SCALER.name}
    return None if live.get("status") == content else {**kind, "metadata": meta, "status": content}


def differs_in_facts(content: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    """True if more differs than the percentages of speculation."""
    return _without_percentages(content) != _without_percentages(old)


def _without_percentages(content: Mapping[str, Any]) -> Object:
    speculation = content.get("speculation", {})
    rest = {key: speculation[key] for key in speculation if key not in PERCENTAGES}
    return {**content, "speculation": rest}


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


def _with_time(one: ConditionState, old: Mapping[str, Any], generation: int, now: str) -> Object:
    status = STATUS_WORDS[one.holds]
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


def _role(observed: Observed, role: Role, made: Desired) -> Object:
    live = observed.workload(role)
    serving, wanted = len(ready(observed, role)), 0 if live is None else live.replicas
    later = made.next_revisions.get(role)
    waits = {} if later is None else {"nextRevision": later}
    return {
        **waits,
        "replicas": len(observed.pods_of(role)),
        "readyReplicas": serving,
        "updatedReplicas": 0 if live is None else live.updated,
        "desiredReplicas": wanted,
        "ready": f"{serving}/{wanted}",
        "selector": selector_text(made.selectors[role]),
        "revision": made.revisions[role],
    }


def _same_pod_draft(view: View, target: Object) -> Object:
    """Return the status of drafts in their targets' pods: the targets' but for those that serve."""
    serving = serving_drafts(view)
    ready = f"{serving}/{target['desiredReplicas']}"
    return {**target, "readyReplicas": serving, "ready": ready}


def _speculation(view: View, old: Mapping[str, Any], now: str) -> Object:
    decision, window = view.decision, view.window
    rows = decision.max_rows if decision.speculate else 0
    same = old.get("maxRows") == rows and "lastChangeTime" in old
    content: Object = {
        "maxRows": rows,
        "reason": old["reason"] if same else decision.sentence[:MAX_MESSAGE],
        "lastChangeTime": old["lastChangeTime"] if same else now,
    }
    percentages = {
        "gainPercent": None if window is None else window.gain_percent,
        "hitPercent": None if window is None or window.hit_rate is None else 100 * window.hit_rate,
    }
    for name, percent in percentages.items():
        shown = old.get(name) if percent is None else _rounded(percent, old.get(name))
        if shown is not None:  # the last known value stays until there is a newer one
            content[name] = shown
    return content


def _rounded(percent: float, old: int | None) -> int:
    """Return the old percentage while it is nearly right: a status is not a metric."""
    if old is not None and abs(percent - old) < ROUNDING:
        return old
    return ROUNDING * round(percent / ROUNDING)
