"""Definitions of kinds that other projects bring, with the fields that the operator uses.

    with installed(control_plane, POD_MONITOR):
        ...

As strict about those as the real ones; what is done about such objects is nobody's here.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from outrider.operator.cluster.kinds import (
    CERTIFICATE,
    INFERENCE_POOL,
    LEADER_WORKER_SET,
    ObjectKind,
)
from tests.kube.control_plane import ControlPlane, KubectlError

Schema = dict[str, Any]
OPEN: Schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer", "format": "int32"}
EITHER: Schema = {"x-kubernetes-int-or-string": True}


def _part(*required: str, **properties: Schema) -> Schema:
    """An object; what is not named is dropped by the server."""
    made: Schema = {"type": "object", "properties": properties}
    return made | ({"required": list(required)} if required else {})


def _words(*allowed: str) -> Schema:
    return {"type": "string", "enum": list(allowed)}


_PORT = _part("number", number={**WHOLE, "minimum": 1, "maximum": 65535})
_PICKER = _part(
    "name",
    group={**TEXT, "default": ""},
    kind={**TEXT, "default": "Service"},
    name=TEXT,
    port=_PORT,
    failureMode={**_words("FailOpen", "FailClose"), "default": "FailClose"},
)
_POOL = _part(
    "selector",
    "targetPorts",
    "endpointPickerRef",
    selector=_part("matchLabels", matchLabels={"type": "object", "additionalProperties": TEXT}),
    targetPorts={"type": "array", "items": _PORT, "minItems": 1, "maxItems": 8},
    endpointPickerRef={
        **_PICKER,
        "x-kubernetes-validations": [{"rule": "self.kind != 'Service' || has(self.port)"}],
    },
)
_ROLLING = _part(
    partition={**WHOLE, "default": 0},
    maxUnavailable={**EITHER, "default": 1},
    maxSurge={**EITHER, "default": 0},
)
_SOME_MAY_CHANGE = (
    "self.replicas == 0 || "
    "(type(_.maxSurge) == int ? _.maxSurge != 0 : _.maxSurge != '0%') || "
    "(type(_.maxUnavailable) == int ? _.maxUnavailable != 0 :"
    " int(_.maxUnavailable.replace('%', '')) * self.replicas >= 100)"
).replace("_.", "self.rolloutStrategy.rollingUpdateConfiguration.")
"""A share of what may be unavailable is rounded down, one of a surge up."""
_SET = _part(
    "leaderWorkerTemplate",
    replicas={**WHOLE, "default": 1},
    startupPolicy={**_words("LeaderCreated", "LeaderReady"), "default": "LeaderCreated"},
    rolloutStrategy=_part(
        "type",
        type={**_words("RollingUpdate"), "default": "RollingUpdate"},
        rollingUpdateConfiguration=_ROLLING,
    ),
    leaderWorkerTemplate=_part(
        "workerTemplate",
        size={**WHOLE, "default": 1},
        restartPolicy=_words("Default", "RecreateGroupOnPodRestart", "None"),
        workerTemplate=OPEN,
    ),
) | {"x-kubernetes-validations": [{"rule": _SOME_MAY_CHANGE}]}
_DURATION = {"type": "string", "pattern": r"^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+$"}
_LIST = {"type": "array", "items": TEXT}
_CERTIFICATE = _part(
    "secretName",
    "issuerRef",
    secretName=TEXT,
    issuerRef=_part("name", name=TEXT, kind=TEXT, group=TEXT),
    dnsNames=_LIST,
    usages={
        "type": "array",
        "items": _words("digital signature", "key encipherment", "server auth", "client auth"),
    },
    privateKey=_part(
        algorithm=_words("RSA", "ECDSA", "Ed25519"),
        encoding=_words("PKCS1", "PKCS8"),
        rotationPolicy=_words("Never", "Always"),
        size={"type": "integer"},
    ),
    duration=_DURATION,
    renewBefore=_DURATION,
)
SPECS: Mapping[ObjectKind, Schema] = {
    CERTIFICATE: _CERTIFICATE,
    INFERENCE_POOL: _POOL,
    LEADER_WORKER_SET: _SET,
}


def definition(kind: ObjectKind) -> dict[str, Any]:
    """A CustomResourceDefinition, a fresh one."""
    names = {"kind": kind.name, "plural": kind.plural, "singular": kind.name.lower()}
    meta: dict[str, Any] = {"name": f"{kind.plural}.{kind.group}"}
    if kind.group.endswith(".k8s.io"):  # the API server asks for it in groups of its own project
        meta["annotations"] = {"api-approved.kubernetes.io": "unapproved, for a test"}
    schema = _part(spec=SPECS.get(kind, OPEN), status=OPEN)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": meta,
        "spec": {
            "group": kind.group,
            "scope": "Namespaced",
            "names": names,
            "versions": [
                {
                    "name": kind.version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


@contextlib.contextmanager
def installed(control_plane: ControlPlane, *kinds: ObjectKind) -> Iterator[None]:
    """The cluster knows these kinds until the end of the block."""
    names = [f"{kind.plural}.{kind.group}" for kind in kinds]
    control_plane.apply(*(definition(kind) for kind in kinds))
    control_plane.wait_until(lambda: _served(control_plane, names), "the kinds are served")
    try:
        yield
    finally:
        control_plane.kubectl("delete", "crd", *names)


def _served(control_plane: ControlPlane, names: Sequence[str]) -> bool:
    """Whether objects of all these definitions can be listed."""
    try:
        control_plane.kubectl("get", ",".join(names), "-A")
    except KubectlError:
        return False
    return True
