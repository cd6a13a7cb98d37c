"""GPUs and shared memory of a role's pods: as the role names them, else as its ranks need them.

Pure. Leaves containers and volumes to `manifests`. They have no effect on `outrider run`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from outrider.operator.naming import CONTAINER
from outrider.operator.spec.engine import DeviceKind
from outrider.operator.spec.roles import RoleSpec

GPU = "nvidia.com/gpu"
"""Resource of whole GPUs."""
DEVICES = (GPU, "nvidia.com/mig-")
"""Beginnings of the resources that bring a GPU, or a part of one."""
MODEL_LABEL = "nvidia.com/gpu.product"
"""Label by which NVIDIA's device plugin names the model of a node's GPUs."""
Prices = Mapping[str, float]
"""Price of a GPU for an hour, by its resource or by its model, in any currency."""
NO_PRICES: Prices = {}
MIG_SLICES = 7
"""Compute slices of a whole GPU that is split (NVIDIA, Multi-Instance GPU)."""
MIG_QUARTERS = frozenset({"1g.6gb", "2g.12gb", "4g.24gb", "4g.96gb"})
"""Profiles of GPUs with 4 slices (A30, RTX PRO 6000) that no other GPU has. 1g.24gb and 2g.48gb are
of several, with other shares, and count in sevenths."""
OTHER_DEVICES = (
    "amd.com/",
    "aws.amazon.com/neuron",
    "google.com/tpu",
    "gpu.intel.com/",
    "habana.ai/",
)
"""Beginnings of the resources of accelerators for which there are no kernels."""


def limits(
    role: RoleSpec, template: Mapping[str, Any] | None = None, container: str = CONTAINER
) -> dict[str, int | str]:
    """Return the limits of a role's container: where it wants GPUs and nothing names any, one a
    rank.

    `template` is all that is laid over its pod; None: only the role's own `podTemplate` is known.
    """
    given = dict((role.resources and role.resources.limits) or {})
    over = (role.pod_template or {}) if template is None else template
    if role.engine.device is not DeviceKind.GPU or _names_gpus(given) or _brings(over, container):
        return given
    return {**given, GPU: role.parallelism.ranks}


def asks_for_gpus(role: RoleSpec) -> bool:
    """True if a role's container gets GPUs by its limits."""
    return any(key.startswith(DEVICES) and str(n) != "0" for key, n in limits(role).items())


def in_template(role: RoleSpec) -> bool:
    """True if the role's podTemplate brings devices of its own, as resource claims do."""
    return _brings(role.pod_template or {}, CONTAINER)


def _brings(template: Mapping[str, Any], container: str) -> bool:
    return any(
        bool(found.get("claims")) or _names_gpus(_mapping(found.get("limits")))
        for found in _template_resources(template, container)
    )


def device(role: RoleSpec) -> DeviceKind:
    """Return the device of a role's models in a cluster: a pod that was given GPUs computes on
    them, or says why it cannot. Stages compute on processors."""
    engine, stages = role.engine, role.parallelism.stages
    if engine.device is DeviceKind.AUTO and stages == 1 and asks_for_gpus(role):
        return DeviceKind.GPU
    return engine.device


def price(role: RoleSpec, prices: Prices) -> float:
    """Return the price of the GPUs of one replica of a role for an hour; 0: one has none.

    A GPU has the price of its model, where the role's `podTemplate` selects nodes by it; else that
    of its resource, of which a part of a GPU without a price of its own takes its share.
    """
    selected = _mapping(_mapping((role.pod_template or {}).get("spec")).get("nodeSelector"))
    of_model, total = prices.get(str(selected.get(MODEL_LABEL))), 0.0
    for name, amount in _amounts(role):
        share = _share_of_gpu(name)
        if not amount or not (share or name in prices):
            continue
        whole = prices.get(GPU, 0.0) if name.startswith(DEVICES) else 0.0
        each = share * of_model if of_model else prices.get(name, share * whole)
        if not each:
            return 0.0
        total += amount * each
    return total * role.parallelism.pods


def number(role: RoleSpec) -> float:
    """Return the GPUs of one replica of a role, of whatever kind; 0: none, or not said."""
    each = sum(amount * _share_of_gpu(name) for name, amount in _amounts(role))
    return each * role.parallelism.pods


def _share_of_gpu(resource: str) -> float:
    """Return the GPUs of one unit of a resource; `nvidia.com/mig-2g.20gb` is two sevenths of one,
    by its compute slices."""
    if found := re.match(r"nvidia\.com/mig-((\d+)g\.\d+gb)", resource):
        return int(found[2]) / (4 if found[1] in MIG_QUARTERS else MIG_SLICES)
    return 1.0 if resource.endswith("/gpu") else 0.0


def _amounts(role: RoleSpec) -> Iterator[tuple[str, int]]:
    return ((name, int(n)) for name, n in limits(role).items() if str(n).isdigit())


def shared_memory(role: RoleSpec) -> str | None:
    """Return the size of /dev/shm; None: the container runtime's 64Mi, which one rank never fills.

    A gibibyte a rank is what NCCL's guide gives containers. Ranks on processors use none of it:
    theirs is memory without a name.
    """
    ranks = role.parallelism.ranks
    return f"{ranks}Gi" if ranks > 1 else None


def _names_gpus(amounts: Mapping[Any, Any]) -> bool:
    """True if amounts speak of GPUs, even of none."""
    return any(str(key).startswith(DEVICES) for key in amounts)


def _template_resources(template: Mapping[str, Any], container: str) -> Iterator[Mapping[str, Any]]:
    """Yield the resources of a worker's container; what is no container is the API server's to
    refuse."""
    containers = _mapping(template.get("spec")).get("containers")
    for one in containers if isinstance(containers, list) else []:
        if _mapping(one).get("name") == container:
            yield _mapping(one.get("resources"))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
