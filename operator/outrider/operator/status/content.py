"""Status of a service and of its scalers as it is applied. Pure.

Written only where it differs from what is there; a condition keeps its time while its status stays.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from outrider.contract.process import HTTP_PORT
from outrider.contract.settings import Role
from outrider.operator.admission import advice
from outrider.operator.cluster.kinds import ROLE_SCALER, SERVICE
from outrider.operator.manifests.desired import Desired, roles
from outrider.operator.naming import role_name, selector_text
from outrider.operator.observed.service import Observed
from outrider.operator.spec.conditions import ConditionType
from outrider.operator.spec.status import MAX_ADVICE, MAX_RESOURCES
from outrider.operator.status.conditions import conditions, serving_drafts
from outrider.operator.status.rollout import rolled_out_generation
from outrider.operator.status.view import PERCENTAGES, ConditionState, View

Object = dict[str, Any]
STATUS_WORDS = {True: "True", False: "False", None: "Unknown"}
PERCENT_SECONDS = 60.0
"""Least time between two writes for the percentages alone; each write causes one more pass. Under
traffic that varies by 8 %, 3.0 writes per service and minute became 1.05 (`bench.operator`)."""
MAX_MESSAGE = 1024


def status(view: View, now: str) -> Object:
    """Return the whole status; `now` is an RFC 3339 time for what has just changed."""
    owner = view.observed.owner
    scheme = "https" if view.service.spec.client_tls else "http"
    content: Object = {
        "observedGeneration": view.observed.generation,
        "rolledOutGeneration": rolled_out_generation(view),
        "conditions": with_times(conditions(view), view.observed, now),
        "speculation": _speculation(view, now),
        "url": f"{scheme}://{owner.name}.{owner.namespace}.svc:{HTTP_PORT}",
        "resources": [
            {"kind": one["kind"], "name": one["metadata"]["name"]}
            for one in view.wanted.objects[:MAX_RESOURCES]
        ],
        "advice": said(view),
        "admitted": list(view.admitted),
    }
    for role in roles(view.service):
        content[role.value] = _role(view.observed, role, view.wanted)
    if view.service.spec.same_pod:
        content[Role.DRAFT.value] = _same_pod_draft(view, content[Role.TARGET.value])
    return content


def said(view: View) -> list[str]:
    """Return the advice on a service, as much as its status holds: first the fields that are
    ignored."""
    every = (
        *advice.on_rival(view.rival),
        *advice.on_unasked(view.unasked),
        *view.reader.removed,
        *advice.on_unknown(view.reader.unknown),
        *advice.on_unguarded(view.service, any(view.certificates.values())),
        *advice.on_former_secrets(
            view.observed.owner, view.certificates, view.observed.live_workloads
        ),
        *advice.on(view.service, view.platform.gpu_prices),
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


def scaler_status(view: View, role: Role) -> Object | None:
    """Return the status of a role's scaler as it is applied; None where it is there already."""
    observed = view.observed
    live = observed.children.get((ROLE_SCALER.name, role_name(observed.owner.name, role)))
    if live is None or not observed.owns(live):
        return None
    content = {
        "observedGeneration": live["metadata"]["generation"],
        "replicas": len(observed.pods_of(role)),
        "selector": selector_text(view.wanted.selectors[role]),
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
    serving, wanted = len(observed.serving(role)), 0 if live is None else live.replicas
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


def _speculation(view: View, now: str) -> Object:
    decision, old = view.decision, view.observed.status.get("speculation", {})
    rows = decision.max_rows if decision.speculate else 0
    same = old.get("maxRows") == rows and "lastChangeTime" in old
    content: Object = {
        "maxRows": rows,
        "reason": old["reason"] if same else decision.sentence[:MAX_MESSAGE],
        "lastChangeTime": old["lastChangeTime"] if same else now,
    }
    return {**content, **view.percentages}
