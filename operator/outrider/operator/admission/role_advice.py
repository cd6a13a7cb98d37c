"""Advice on the pods of one role, as rules for the API server (CEL) and the operator (Python).

A rule that does not hold is worth a sentence and refuses nothing. Leaves advice on the whole
service to `advice_rules`.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from outrider.contract.settings import Role
from outrider.operator.admission.rule import AdviceRule
from outrider.operator.manifests.termination import (
    CLOSE_SECONDS,
    DRAFT_SECONDS,
    LAME_DUCK_SECONDS,
    pod_seconds,
)
from outrider.operator.naming import (
    CONTAINER,
    IDENTITY_ANNOTATION,
    REVISION_LABEL,
    SETTINGS_ANNOTATION,
    labels,
)
from outrider.operator.spec import accelerators
from outrider.operator.spec.accelerators import DEVICES, GPU, OTHER_DEVICES
from outrider.operator.spec.engine import DeviceKind
from outrider.operator.spec.pods import AccessMode
from outrider.operator.spec.roles import Draft, RoleSpec, ScalingMode, Target

Check = Callable[[Any], bool]
OPERATORS_KEYS = (
    *labels("", "any"),
    REVISION_LABEL,
    SETTINGS_ANNOTATION,
    IDENTITY_ANNOTATION,
)
"""Labels and annotations of pods, which the operator writes and reads."""
REPLACED = ("args", "command", "image", "resources")
"""Fields of a worker's container that are the operator's to write."""
CONTAINERS = "self.?podTemplate.?spec.?containers.orValue([])"
"""Containers of a `podTemplate`, in CEL; what is none is the API server's to refuse."""
_LIMITS = "self.?resources.?limits.orValue({})"
_REQUESTS = "self.?resources.?requests.orValue({})"
_RANKS = "self.parallelism.tensor / self.parallelism.nodes"
_IS_DEVICE = "(" + " || ".join(f"k.startsWith('{device}')" for device in DEVICES) + ")"
_ASKS = f"{_LIMITS}.exists(k, {_IS_DEVICE} && string({_LIMITS}[k]) != '0')"
_NO_SURGE = "(self.update.strategy == 'Recreate' || string(self.update.maxSurge) in ['0', '0%'])"
_BRINGS = (
    f"{CONTAINERS}.exists(c, c.?name.orValue('') == '{CONTAINER}' &&"
    " (size(c.?resources.?claims.orValue([])) > 0 ||"
    f" c.?resources.?limits.orValue({{}}).exists(k, {_IS_DEVICE})))"
)


def role_advice(role: Role) -> tuple[AdviceRule, ...]:
    """Return the advice on one role."""
    return (*_worker_advice(role), *_pod_advice(role))


def _worker_advice(role: Role) -> Iterator[AdviceRule]:
    """Yield the advice on containers of workers, in pods of their own or not."""
    rules = (_memory, _cpu_with_gpus, _no_gpus, _other_gpus, _other_devices, _claim, _surge)
    for rule in (*rules, _spare_gpus, _stages_with_gpus) if role is Role.TARGET else rules:
        cel, message, field, holds = rule(role)
        if role is Role.DRAFT:
            cel, holds = f"self.placement == 'Colocated' || {cel}", _if_worker(holds)
        yield AdviceRule(f"spec.{role}", cel, message, holds, field)


def _if_worker(holds: Check) -> Check:
    return lambda draft: not draft.is_worker or holds(draft)


Advice = tuple[str, str, str, Check]
"""CEL of a rule, its words, the field that they are about, and its Python."""


def _memory(_: Role) -> Advice:
    def holds(spec: RoleSpec) -> bool:
        resources = spec.resources
        requests = (resources and resources.requests) or {}
        return "memory" in requests or "memory" in _limits(spec)

    words = "no memory is asked for; a node that runs short evicts such pods first"
    return f"('memory' in {_REQUESTS} || 'memory' in {_LIMITS})", words, ".resources", holds


def _cpu_with_gpus(_: Role) -> Advice:
    return (
        f"(self.engine.device != 'CPU' || !{_ASKS})",
        "CPU, though resources.limits asks for GPUs",
        ".engine.device",
        lambda r: r.engine.device is not DeviceKind.CPU or not accelerators.asks_for_gpus(r),
    )


def _no_gpus(role: Role) -> Advice:
    def holds(spec: RoleSpec) -> bool:
        alone = spec.engine.device is not DeviceKind.AUTO or spec.parallelism.ranks == 1
        asks = accelerators.asks_for_gpus(spec) or accelerators.in_template(spec)
        return alone or spec.parallelism.stages > 1 or asks

    stages = " || self.parallelism.pipeline > 1" if role is Role.TARGET else ""
    return (
        f"(self.engine.device != 'Auto' || {_RANKS} == 1{stages} || {_ASKS} || {_BRINGS})",
        f"Auto, and resources.limits asks for no {GPU}: several ranks a pod compute on"
        " processors; CPU says that it is meant",
        ".engine.device",
        holds,
    )


def _other_gpus(_: Role) -> Advice:
    def holds(spec: RoleSpec) -> bool:
        given = _limits(spec)
        return GPU not in given or str(given[GPU]) == str(spec.parallelism.ranks)

    return (
        f"(!('{GPU}' in {_LIMITS}) || string({_LIMITS}['{GPU}']) == string({_RANKS}))",
        f"another number of {GPU} than ranks a pod, which are parallelism.tensor / nodes",
        ".resources.limits",
        holds,
    )


def _other_devices(_: Role) -> Advice:
    def holds(spec: RoleSpec) -> bool:
        return not any(key.startswith(OTHER_DEVICES) for key in _limits(spec))

    others = " || ".join(f"k.startsWith('{device}')" for device in OTHER_DEVICES)
    return (
        f"!{_LIMITS}.exists(k, {others})",
        f"workers compute on processors and on {GPU}: other accelerators stay idle",
        ".resources.limits",
        holds,
    )


def _spare_gpus(_: Role) -> Advice:
    def holds(spec: RoleSpec) -> bool:
        wants = spec.engine.device is DeviceKind.GPU
        has = accelerators.asks_for_gpus(spec) or accelerators.in_template(spec)
        return not ((wants or has) and spec.update.surges)

    return (
        f"(!(self.engine.device == 'GPU' || {_ASKS} || {_BRINGS}) || {_NO_SURGE})",
        "each rollout needs the GPUs of more replicas than there are; without spare ones, maxSurge"
        " 0 and maxUnavailable 1 replace pods one by one; a single replica serves nobody meanwhile",
        ".update.maxSurge",
        holds,
    )


def _stages_with_gpus(_: Role) -> Advice:
    return (
        f"(self.parallelism.pipeline == 1 || !{_ASKS})",
        "asks for GPUs, though stages compute on processors",
        ".resources.limits",
        lambda t: t.parallelism.stages == 1 or not accelerators.asks_for_gpus(t),
    )


def _claim(role: Role) -> Advice:
    return (
        f"(self.cache.accessMode == 'ReadWriteMany' || {_most_pods(role)} <= 1)",
        "not ReadWriteMany, though there may be several pods: some wait for the claim",
        ".cache.accessMode",
        lambda r: _is_shared(r) or _pods(r) <= 1,
    )


def _surge(role: Role) -> Advice:
    return (
        f"(self.cache.accessMode == 'ReadWriteMany' || {_most_pods(role)} > 1 || {_NO_SURGE})",
        "not ReadWriteMany: new pods may wait for old ones; see update.maxSurge",
        ".cache.accessMode",
        lambda r: _is_shared(r) or _pods(r) > 1 or not r.update.surges,
    )


def _is_shared(spec: RoleSpec) -> bool:
    return spec.cache.access_mode is AccessMode.READ_WRITE_MANY


def _pods(spec: RoleSpec) -> int:
    """Return the most pods of a role, as far as it says that itself."""
    static = spec.scaling.mode is ScalingMode.STATIC
    replicas = spec.first_replicas if static else spec.scaling.max_replicas
    return replicas * spec.parallelism.pods


def _most_pods(role: Role) -> str:
    """Return `_pods` in CEL."""
    stages = " * self.parallelism.pipeline" if role is Role.TARGET else ""
    return (
        "(self.scaling.mode == 'Static' ? self.?replicas.orValue(1) : self.scaling.maxReplicas)"
        f" * self.parallelism.nodes{stages}"
    )


def _limits(spec: RoleSpec) -> Mapping[str, int | str]:
    return (spec.resources and spec.resources.limits) or {}


def _pod_advice(role: Role) -> Iterator[AdviceRule]:
    """Yield the advice on the `podTemplate` of a role that has pods of its own; the others have
    none."""
    path = f"spec.{role}"
    keys = ", ".join(f"'{key}'" for key in OPERATORS_KEYS)
    for kind in ("labels", "annotations"):
        yield AdviceRule(
            path,
            f"!self.?podTemplate.?metadata.?{kind}.orValue({{}}).exists(k, k in [{keys}])",
            "has a key of the operator's, which stays as the operator writes it",
            _keeps_keys(kind),
            f".podTemplate.metadata.{kind}",
        )
    margin = LAME_DUCK_SECONDS + CLOSE_SECONDS
    is_target = role is Role.TARGET
    least = f"self.requests.maxSeconds + {margin}" if is_target else str(DRAFT_SECONDS)
    words = f"requests.maxSeconds and {margin} more" if is_target else least
    yield AdviceRule(
        path,
        f"self.?podTemplate.?spec.?terminationGracePeriodSeconds.orValue({least}) >= {least}",
        f"is less than {words}: a pod that ends may cut what runs",
        _leaves_time,
        ".podTemplate.spec.terminationGracePeriodSeconds",
    )
    yield from replaced(path, CONTAINER)


def replaced(path: str, container: str) -> Iterator[AdviceRule]:
    """Yield the advice on fields that a template takes from the operator in a container."""
    for key in REPLACED:
        yield AdviceRule(
            path,
            f"!{CONTAINERS}.exists(c, c.?name.orValue('') == '{container}' && has(c.{key}))",
            f"{key} of the container {container} replaces the operator's",
            _keeps(container, key),
            ".podTemplate",
        )


def _keeps_keys(kind: str) -> Check:
    def holds(spec: RoleSpec) -> bool:
        given = (spec.pod_template or {}).get("metadata", {}).get(kind, {})
        return not given.keys() & set(OPERATORS_KEYS)

    return holds


def _leaves_time(spec: Target | Draft) -> bool:
    given = (spec.pod_template or {}).get("spec", {}).get("terminationGracePeriodSeconds")
    return not isinstance(given, int) or given >= pod_seconds(spec)


def _keeps(container: str, key: str) -> Check:
    return lambda spec: (
        not any(
            one.get("name") == container and key in one
            for one in _containers(spec.pod_template or {})
        )
    )


def _containers(template: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the containers of a template; the API server refuses anything that is none."""
    found = template.get("spec", {}).get("containers")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
