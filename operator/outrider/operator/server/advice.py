"""Warnings about a description that is allowed but probably not meant.

Nothing is refused: the definitions and `spec` do that. `reconcile` posts the warnings as events,
`admission` returns them at once.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from outrider.contract.settings import Role
from outrider.operator.control.break_even import LEAST_PERCENT, break_even
from outrider.operator.manifests.desired import role_spec, roles, workers
from outrider.operator.manifests.termination import pod_seconds
from outrider.operator.naming import (
    CONTAINER,
    CONTROL_ANNOTATION,
    DRAFT_CONTAINER,
    GROUP_LABEL,
    IDENTITY_ANNOTATION,
    REVISION_LABEL,
    SETTINGS_ANNOTATION,
    labels,
)
from outrider.operator.plan import control, sessions
from outrider.operator.spec import (
    AccessMode,
    Automatic,
    DeviceKind,
    Draft,
    DraftScaling,
    MetricsSource,
    Pipeline,
    ScalingMode,
    Speculation,
    SpeculationMode,
    SpeculativeService,
    Strategy,
    Target,
    accelerators,
)
from outrider.operator.spec.accelerators import GPU
from outrider.operator.spec.speculation import Source

REASON = "Advice"
"""Reason of the events."""
MAX_TEMPLATE = 32 << 10
"""Most bytes of a `podTemplate` as JSON; etcd keeps objects and their histories whole."""
HIGH_BREAK_EVEN = 150
"""Derived break-even, in percent, that surprises: many a draft that is worth having gains less."""
PRESSURE = (
    ("disable", "queue_above", "queueAbove"),
    ("disable", "kv_usage_above_percent", "kvUsageAbovePercent"),
    ("enable", "queue_below", "queueBelow"),
    ("enable", "kv_usage_below_percent", "kvUsageBelowPercent"),
)
"""Thresholds of a Colocated draft alone: part of `speculation`, its field, the field's key."""
ANNOTATIONS = (SETTINGS_ANNOTATION, CONTROL_ANNOTATION, IDENTITY_ANNOTATION)
"""Of pods, which the operator writes and reads."""
_DEFAULTS = Speculation()


def on_unknown(fields: Iterable[str]) -> Iterator[str]:
    """Yield one sentence for each field that this program does not know."""
    for path in fields:
        yield f"{path}: this version of the operator does not know the field and ignores it"


def on_unguarded(service: SpeculativeService, certified: bool) -> Iterator[str]:
    """Yield a sentence where nothing keeps strangers from workers; `certified`: certificates do."""
    if not certified and service.spec.network_policy.mode is Automatic.DISABLED:
        words = "Disabled, and the operator gives workers no certificates"
        yield f"spec.networkPolicy.mode: {words}: whoever reaches a pod may tell it what to do"


def on(service: SpeculativeService) -> Iterator[str]:
    """Yield one sentence for each thing that is probably not meant."""
    for pods in roles(service):
        for words in _template(service, pods, role_spec(service, pods).pod_template or {}):
            yield f"spec.{pods}.{words}"
        for role in workers(service, pods):
            spec = role_spec(service, role)
            for words in (*_resources(spec), *_gpus(spec), *_cache(spec)):
                yield f"spec.{role}.{words}"
    target = service.spec.target
    if target.parallelism.stages == 1 and target.pipeline != Pipeline():
        yield "spec.target.pipeline: does nothing where parallelism.pipeline is 1"
    yield from _metrics(service)
    keyless = service.spec.access.api_keys_secret_ref is None
    if keyless and Source.ANSWERS in service.spec.speculation.sources:
        yield "spec.speculation.sources: Answers finds nothing without access.apiKeysSecretRef"
    if service.spec.draft is not None:
        yield from _draft(service, service.spec.draft)
        yield from _pressure(service.spec.speculation, service.spec.draft)
        yield from _gain(service, service.spec.draft)


def _metrics(service: SpeculativeService) -> Iterator[str]:
    metrics, interval = service.spec.metrics, service.spec.speculation.control.interval_seconds
    server = metrics.prometheus
    if metrics.source is MetricsSource.PODS:
        if server is not None:
            yield "spec.metrics.prometheus: does nothing where source is Pods"
    elif metrics.stale_after_seconds < 2 * interval:
        words = f"{metrics.stale_after_seconds} is less than two scrapes, one every {interval} s"
        yield f"spec.metrics.staleAfterSeconds: {words} (speculation.control.intervalSeconds)"
    if server is not None and server.has_secret and server.url.startswith("http://"):
        yield "spec.metrics.prometheus.url: http sends what the Secret holds in plain text"


def _draft(service: SpeculativeService, draft: Draft) -> Iterator[str]:
    if not draft.has_pods:
        if draft.scaling != DraftScaling():
            words = f"does nothing where placement is {draft.placement}: each target has one draft"
            yield f"spec.draft.scaling: {words}"
    elif draft.engine.max_running is None:
        capacity, running = sessions(service, draft), _max_running(service)
        if capacity < running:
            words = f"left out, a draft holds {capacity} of {running} sessions"
            yield f"spec.draft.engine.maxRunning: {words}"


def _pressure(speculation: Speculation, draft: Draft) -> Iterator[str]:
    if not draft.is_worker:
        return
    for part, field, key in PRESSURE:
        given, default = (getattr(getattr(one, part), field) for one in (speculation, _DEFAULTS))
        if given != default:
            words = f"does nothing where placement is {draft.placement}, only where it is Colocated"
            yield f"spec.speculation.{part}.{key}: {words}"


def _gain(service: SpeculativeService, draft: Draft) -> Iterator[str]:
    speculation = service.spec.speculation
    adaptive = speculation.mode is SpeculationMode.ADAPTIVE
    if not adaptive or speculation.disable.gain_below_percent is not None:
        return
    pays = break_even(control(service), draft.first_replicas, service.spec.target.first_replicas)
    if pays.off_below >= HIGH_BREAK_EVEN:
        words = f"left out, drafting goes off under {pays.off_below}, which pays for its GPUs"
        keeps = f"{LEAST_PERCENT} keeps it for any gain"
        yield f"spec.speculation.disable.gainBelowPercent: {words}; {keeps}"


def _max_running(service: SpeculativeService) -> int:
    target = service.spec.target
    return target.engine.max_running * target.first_replicas


def _template(service: SpeculativeService, role: Role, template: dict[str, Any]) -> Iterator[str]:
    size = len(json.dumps(template))
    if size > MAX_TEMPLATE:
        yield f"podTemplate: {size} bytes; more than {MAX_TEMPLATE} make every change slow"
    metadata = template.get("metadata", {})
    fixed = {*labels(service.metadata.name, role), REVISION_LABEL, GROUP_LABEL, *ANNOTATIONS}
    for kind in ("labels", "annotations"):
        for key in sorted(fixed & {*metadata.get(kind, {})}):
            yield f"podTemplate.metadata.{kind}: {key} is the operator's and stays as it is"
    yield from _grace(role_spec(service, role), template)
    known = (CONTAINER, DRAFT_CONTAINER) if service.spec.same_pod else (CONTAINER,)
    for container in _containers(template):
        if container.get("name") in known:
            for key in sorted({"args", "command", "image", "resources"} & container.keys()):
                words = f"{key} of the container {container['name']} replaces the operator's"
                yield f"podTemplate: {words}"


def _grace(spec: Target | Draft, template: dict[str, Any]) -> Iterator[str]:
    given, least = template.get("spec", {}).get("terminationGracePeriodSeconds"), pod_seconds(spec)
    if isinstance(given, int) and given < least:
        words = f"terminationGracePeriodSeconds: {given} is less than {least}"
        yield f"podTemplate.spec.{words}: a pod that ends may cut what runs"


def _containers(template: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the containers of a template; the API server refuses anything that is none."""
    found = template.get("spec", {}).get("containers")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _resources(spec: Target | Draft) -> Iterator[str]:
    resources = spec.resources
    asked = _limits(spec).keys() | ((resources and resources.requests) or {}).keys()
    if "memory" not in asked:
        yield "resources: no memory is asked for; a node that runs short evicts such pods first"


def _limits(spec: Target | Draft) -> dict[str, int | str]:
    return (spec.resources and spec.resources.limits) or {}


def _gpus(spec: Target | Draft) -> Iterator[str]:
    limits, device, ranks = _limits(spec), spec.engine.device, spec.parallelism.ranks
    asks = accelerators.asks_for_gpus(spec)
    if asks and device is DeviceKind.CPU:
        yield "engine.device: CPU, though resources.limits asks for GPUs"
    if spec.parallelism.stages > 1:
        if asks:
            yield "resources.limits: asks for GPUs, though stages compute on processors"
    elif device is DeviceKind.AUTO and ranks > 1 and not (asks or accelerators.in_template(spec)):
        words = f"Auto, and resources.limits asks for no {GPU}: {ranks} ranks a pod"
        yield f"engine.device: {words} compute on processors; CPU says that it is meant"
    if GPU in limits and str(limits[GPU]) != str(ranks):
        yield f"resources.limits: {limits[GPU]} of {GPU} for {ranks} ranks a pod"


def _cache(spec: Target | Draft) -> Iterator[str]:
    mode, update = spec.cache.access_mode, spec.update
    if mode is AccessMode.READ_WRITE_MANY:
        return
    static = spec.scaling.mode is ScalingMode.STATIC
    replicas = spec.first_replicas if static else spec.scaling.max_replicas
    surges = update.strategy is Strategy.ROLLING_UPDATE and update.max_surge not in (0, "0%")
    if replicas * spec.parallelism.pods > 1:
        yield f"cache.accessMode: {mode}, though there may be several pods: some wait for the claim"
    elif surges:
        yield f"cache.accessMode: {mode}: new pods may wait for old ones; see update.maxSurge"
