"""Processors and GPUs of this machine that a service may use."""

import os

from outrider.cli import gpus, processors
from outrider.cli.placement.estimate import Machine
from outrider.operator.spec import DeviceKind, RoleSpec, SpeculativeService


def machine_for(service: SpeculativeService) -> Machine:
    """Return what each target and its draft may use of this machine."""
    present, spec = gpus.visible(gpus.present(), os.environ), service.spec
    return Machine(
        processors=max(1, processors.count() // spec.target.first_replicas),
        gpus=0 if gpus.VISIBLE in os.environ else present,  # all workers then see the same ones
        target_gpus=_gpus(spec.target, present),
        draft_gpus=0 if spec.draft is None else _gpus(spec.draft, present),
    )


def _gpus(role: RoleSpec, present: int) -> int:
    """Return the GPUs of all replicas of a role."""
    kind = role.engine.device
    on_gpu = kind is DeviceKind.GPU or (kind is DeviceKind.AUTO and present > 0)
    return role.parallelism.tensor * role.first_replicas if on_gpu else 0
