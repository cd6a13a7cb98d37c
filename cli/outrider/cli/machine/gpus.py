"""Which GPUs each worker of a local run sees, so that a draft is not on its target's.

Pure but for `present` and what asks it. In a cluster this is the kubelet's to decide.
"""

import os
from collections.abc import Mapping
from itertools import islice, takewhile
from pathlib import Path

from outrider.contract.settings import Device, Role
from outrider.operator.plan import Plan
from outrider.operator.spec import DeviceKind, RoleSpec, SpeculativeService

VISIBLE = "CUDA_VISIBLE_DEVICES"


def present(devices: Path = Path("/dev")) -> int:
    """Return the number of NVIDIA GPUs this machine has."""
    return sum(1 for _ in devices.glob("nvidia[0-9]*"))


def visible(present: int, environ: Mapping[str, str]) -> int:
    """Return how many of the GPUs present a worker sees that inherits this environment.

    As CUDA reads its variable: GPUs up to the first name that is none.
    """
    if VISIBLE not in environ:
        return present
    names = (name.strip() for name in environ[VISIBLE].split(","))
    return min(present, sum(1 for _ in takewhile(lambda name: name not in ("", "-1"), names)))


def share(plan: Plan, gpus: int, environ: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Environment by worker: targets see the first GPUs, one for each rank, then drafts.

    Empty where there are not enough for all, or `environ` already says which are to be seen.
    """
    ordered = (*plan.of(Role.TARGET), *plan.of(Role.DRAFT))
    ranks = {
        worker.name: worker.settings.tensor_parallel
        for worker in ordered
        if worker.settings.device is not Device.CPU
    }
    if VISIBLE in environ or sum(ranks.values()) > gpus:
        return {}
    numbers = iter(range(gpus))
    return {name: {VISIBLE: ",".join(map(str, islice(numbers, n)))} for name, n in ranks.items()}


def share_gpu(service: SpeculativeService) -> bool:
    """True if targets and drafts, each its own process, would have to share a GPU: all workers see
    the same ones where the environment names them."""
    draft, target = service.spec.draft, gpus_of(service.spec.target)
    drafts = 0 if draft is None else gpus_of(draft)
    here = 0 if VISIBLE in os.environ else present()
    return bool(target and drafts) and target + drafts > here


def gpus_of(role: RoleSpec) -> int:
    """Return the GPUs that all workers of a role take here."""
    kind, here = role.engine.device, visible(present(), os.environ)
    on_gpu = kind is DeviceKind.GPU or (kind is DeviceKind.AUTO and here > 0)
    return role.parallelism.tensor * role.first_replicas if on_gpu else 0
