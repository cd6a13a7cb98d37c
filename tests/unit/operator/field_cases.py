"""What an edit of each field of a service's spec does: whom it rolls, what it changes. Plain data.

A field of the models that is not here fails the suite. Leaves trying them to `test_fields`.
"""

import dataclasses
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from outrider.contract.settings import Role
from outrider.operator.cluster.kinds import (
    BUDGET,
    CLAIM,
    DEPLOYMENT,
    INFERENCE_POOL,
    LEADER_WORKER_SET,
    NETWORK_POLICY,
    NETWORK_SERVICE,
    POD_MONITOR,
    ObjectKind,
)
from outrider.operator.spec.service import Spec

BESIDE = ("version", "drafts", "speculate", "max_rows")
"""Fields of a policy that follow the workers and the loop; compared only where a case names
them."""
TARGET, DRAFT = frozenset({Role.TARGET}), frozenset({Role.DRAFT})
BOTH: frozenset[Role] = TARGET | DRAFT
Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """One edit, and all that may come of it."""

    value: Any
    rolls: frozenset[Role] = frozenset()
    """Roles whose pod template changes; that of the others does not."""
    policy: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """What targets are told anew."""
    sets: tuple[ObjectKind, str, Path, Any] | None = None
    """A value in one of the service's objects; None: the object is gone."""
    base: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """What the spec has beside the usual, before the edit."""
    beside: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """What has to be edited with it."""


PICKER = ("spec", "endpointPickerRef")
POD_SPEC = ("spec", "template", "spec")
GROUPS = ("spec", "leaderWorkerTemplate")
MADE = {"cache": {"type": "PersistentVolumeClaim", "size": "1Gi"}}
EXTERNAL = {"scaling": {"mode": "External", "minReplicas": 1, "maxReplicas": 4}, "replicas": None}


def _role(role: Role) -> dict[str, Case]:
    """Fields that both roles have."""
    name, only = role.value, frozenset({role})
    work, claim = f"chat-{name}", f"chat-{name}-cache"
    strategy = ("spec", "strategy")
    return {
        "model.uri": Case("hf://org/other", only),
        "model.revision": Case("main", only),
        "model.tokenSecretRef.name": Case("secret", only),
        "model.tokenSecretRef.key": Case(
            "other", only, base={name: {"model": {"tokenSecretRef": {"name": "secret"}}}}
        ),
        "scaling.minReplicas": Case(
            2, sets=(DEPLOYMENT, work, ("spec", "replicas"), 2), base={name: EXTERNAL}
        ),
        "scaling.maxReplicas": Case(
            2,
            sets=(DEPLOYMENT, work, ("spec", "replicas"), 2),
            base={name: {**EXTERNAL, "scaling": {"mode": "External", "minReplicas": 2}}},
        ),
        "engine.device": Case("CPU", only),
        "engine.dtype": Case("fp32", only),
        "engine.threads": Case(2, only),
        "engine.kvMemory": Case("512Mi", only),
        "engine.allReduce": Case("Fused", only, base={name: {"parallelism": {"tensor": 2}}}),
        "parallelism.tensor": Case(2, only),
        "parallelism.nodes": Case(
            2,
            DRAFT if role is Role.TARGET else frozenset(),  # they aim at other pods
            sets=(LEADER_WORKER_SET, work, (*GROUPS, "size"), 2),
            base={name: {"parallelism": {"tensor": 2}}},
        ),
        "image": Case("other:1", only),
        "resources.requests": Case({"cpu": "250m"}, only),
        "resources.limits": Case({"memory": "64Mi"}, only),
        "podTemplate": Case({"metadata": {"annotations": {"a": "b"}}}, only),
        "cache.type": Case("PersistentVolumeClaim", only, base={name: {"cache": {"size": "1Gi"}}}),
        "cache.claimName": Case(
            "theirs",
            only,
            base={name: {"cache": {"type": "PersistentVolumeClaim", "claimName": "ours"}}},
        ),
        "cache.size": Case("2Gi", base={name: MADE}),  # not every storage class lets a claim grow
        "cache.storageClassName": Case(
            "fast",
            only,
            sets=(CLAIM, claim, ("spec", "storageClassName"), "fast"),
            beside={name: MADE},
        ),
        "cache.accessMode": Case(
            "ReadWriteOnce",
            only,
            sets=(CLAIM, claim, ("spec", "accessModes"), ["ReadWriteOnce"]),
            beside={name: MADE},
        ),
        "update.strategy": Case(
            "Recreate", sets=(DEPLOYMENT, work, (*strategy, "type"), "Recreate")
        ),
        "update.maxUnavailable": Case(
            1, sets=(DEPLOYMENT, work, (*strategy, "rollingUpdate", "maxUnavailable"), 1)
        ),
        "update.maxSurge": Case(
            "50%", sets=(DEPLOYMENT, work, (*strategy, "rollingUpdate", "maxSurge"), "50%")
        ),
        "update.progressSeconds": Case(
            900, sets=(DEPLOYMENT, work, ("spec", "progressDeadlineSeconds"), 900)
        ),
    }


def _under(path: str, cases: Mapping[str, Case]) -> dict[str, Case]:
    return {f"{path}.{key}": case for key, case in cases.items()}


CASES: dict[str, Case] = {
    **_under("target", _role(Role.TARGET)),
    **_under("draft", _role(Role.DRAFT)),
    "target.model.servedName": Case("other", BOTH),
    "target.replicas": Case(2, sets=(DEPLOYMENT, "chat-target", ("spec", "replicas"), 2)),
    "target.scaling.mode": Case("External", base={"target": {"replicas": None}}),
    "target.engine.maxRunning": Case(4, TARGET),
    "target.engine.prefixCache": Case(False, BOTH),
    "target.engine.prefill": Case("Library", TARGET),
    "target.engine.maxContext": Case(1024, TARGET, base={"draft": {"engine": {"maxContext": 512}}}),
    "target.parallelism.pipeline": Case(
        2,
        DRAFT,
        sets=(LEADER_WORKER_SET, "chat-target", (*GROUPS, "size"), 2),
    ),
    "target.pipeline.cut": Case([30], TARGET),
    "target.pipeline.dtype": Case("fp16", TARGET),
    "target.pipeline.link": Case("Distributed", TARGET),
    "target.requests.maxSeconds": Case(
        10,
        TARGET,
        sets=(DEPLOYMENT, "chat-target", (*POD_SPEC, "terminationGracePeriodSeconds"), 40),
    ),
    "target.requests.maxQueueSeconds": Case(10, TARGET),
    "target.requests.maxWaiting": Case(10, TARGET),
    "target.requests.cutMaxTokens": Case(False, TARGET),
    "draft.model.embeddingsFrom": Case("Target", DRAFT),
    "draft.replicas": Case(
        2,
        sets=(DEPLOYMENT, "chat-draft", ("spec", "replicas"), 2),
        base={"draft": {"scaling": {"mode": "Static"}}},
    ),
    "draft.scaling.mode": Case("Static"),
    "draft.engine.maxRunning": Case(4, DRAFT),
    "draft.engine.maxContext": Case(512, DRAFT),
    "draft.placement": Case(
        "Colocated",
        TARGET,
        sets=(DEPLOYMENT, "chat-draft", (), None),
        base={"draft": {"engine": None}},
    ),
    "draft.offload": Case(
        "Never", TARGET, base={"draft": {"placement": "Colocated", "engine": None}}
    ),
    "speculation.mode": Case(
        "Disabled",
        policy={"speculate": False, "off_below_percent": 0},
        base={"speculation": {"mode": "Static"}},
    ),
    "speculation.sources": Case(["Draft"], policy={"sources": ["draft"]}),
    "speculation.maxRows": Case(
        3, policy={"max_rows": 3}, base={"speculation": {"mode": "Static"}}
    ),
    "speculation.depth": Case(3, policy={"depth": 3}),
    "speculation.width": Case(3, policy={"width": 3}),
    "speculation.nodesAhead": Case(3, policy={"nodes_ahead": 3}),
    "speculation.disable.gainBelowPercent": Case(
        90, policy={"off_below_percent": 90, "on_above_percent": 100}
    ),
    "speculation.enable.gainAbovePercent": Case(130, policy={"on_above_percent": 130}),
    "speculation.control.intervalSeconds": Case(
        2, sets=(POD_MONITOR, "chat", ("spec", "podMetricsEndpoints", 0, "interval"), "2s")
    ),
    "speculation.control.probeIntervalSeconds": Case(30),
    "speculation.draftShrink.policy": Case("Never"),
    "speculation.draftShrink.afterSeconds": Case(30),
    "speculation.draftShrink.idleSeconds": Case(30),
    "speculation.link": Case("GRPC", BOTH),
    "access.apiKeysSecretRef.name": Case("keys", TARGET),
    "access.apiKeysSecretRef.key": Case(
        "other", TARGET, base={"access": {"apiKeysSecretRef": {"name": "keys"}}}
    ),
    "access.tlsSecretRef.name": Case(
        "chat-tls",
        TARGET,
        sets=(NETWORK_SERVICE, "chat", ("spec", "ports", 0, "appProtocol"), "https"),
    ),
    "draftsOf": Case(
        "pool",
        TARGET,
        sets=(NETWORK_POLICY, "chat-target", ("spec", "egress", 2, "ports", 0, "port"), 50051),
        base={"draft": None},
    ),
    "topology.policy": Case("None", DRAFT),
    "topology.key": Case("topology.kubernetes.io/zone", DRAFT),
    "networkPolicy.mode": Case("Disabled", sets=(NETWORK_POLICY, "chat-draft", (), None)),
    "networkPolicy.clientNamespaces": Case(
        ["web"],
        sets=(
            NETWORK_POLICY,
            "chat-target",
            ("spec", "ingress", 0, "from", 1, "namespaceSelector", "matchExpressions", 0, "values"),
            ["web"],
        ),
    ),
    "networkPolicy.egressPorts": Case(
        [443, 4317],
        sets=(
            NETWORK_POLICY,
            "chat-target",
            ("spec", "egress", 2, "ports", 1, "port"),
            4317,
        ),
    ),
    "podDisruptionBudget.mode": Case(
        "Enabled", sets=(BUDGET, "chat-draft", ("spec", "maxUnavailable"), 1)
    ),
    "podDisruptionBudget.maxUnavailable": Case(
        "20%",
        sets=(BUDGET, "chat-draft", ("spec", "maxUnavailable"), "20%"),
        base={"podDisruptionBudget": {"mode": "Enabled"}},
    ),
    "inferencePool.endpointPicker.name": Case(
        "other",
        sets=(INFERENCE_POOL, "chat", (*PICKER, "name"), "other"),
        base={"inferencePool": {"endpointPicker": {"name": "picker"}}},
    ),
    "inferencePool.endpointPicker.failureMode": Case(
        "FailOpen",
        sets=(INFERENCE_POOL, "chat", (*PICKER, "failureMode"), "FailOpen"),
        base={"inferencePool": {"endpointPicker": {"name": "picker"}}},
    ),
    "monitoring.mode": Case("Disabled", sets=(POD_MONITOR, "chat", (), None)),
    "suspend": Case("Suspended", sets=(DEPLOYMENT, "chat-target", ("spec", "replicas"), 0)),
}


def leaves(model: type[BaseModel] = Spec, path: str = "") -> Iterator[str]:
    """Paths of all fields that hold a value, not a part, as users write them."""
    for name, field in model.model_fields.items():
        here = f"{path}{field.alias or name}"
        parts = [kind for kind in _kinds(field.annotation) if _is_part(kind)]
        if not parts:
            yield here
        for part in parts:
            yield from leaves(part, f"{here}.")


def _kinds(annotation: Any) -> tuple[Any, ...]:
    if typing.get_origin(annotation) is tuple:  # a list is edited as a whole
        return (annotation,)
    return typing.get_args(annotation) or (annotation,)


def _is_part(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def within(live: Any, path: Path) -> Any:
    """Return the value at a path; None where there is no object."""
    for key in path:
        live = None if live is None else live[key]
    return live


def edit(path: str, value: Any) -> dict[str, Any]:
    """A spec that says one thing."""
    for key in reversed(path.split(".")):
        value = {key: value}
    whole: dict[str, Any] = value
    return whole
