"""Loading of a model onto the device that a worker's settings ask for.

Leaves the work to `load_cpu` and `load_gpu`.
"""

import os
from typing import TYPE_CHECKING

from outrider.contract.settings import (
    MAX_NODE_ROWS,
    AllReduceKind,
    Dtype,
    PrefillKind,
    Role,
    WorkerSettings,
)
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.draft.batch import MAX_WIDTH
from outrider.worker.draft.sessions import MAX_NODES
from outrider.worker.errors import ModelError
from outrider.worker.host.device import CUDA, check_dtype, torch_device
from outrider.worker.launch.load_cpu import load_on_cpu
from outrider.worker.launch.loaded import LoadedModel
from outrider.worker.parallel.placement import RankPlacement

if TYPE_CHECKING:
    from outrider.worker.gpu.lending import Lending

BEYOND = {Role.TARGET: MAX_NODE_ROWS + 1, Role.DRAFT: MAX_NODES + MAX_WIDTH}
"""Slots of each sequence behind the longest context: rows of a verify pass, a draft's tree."""


def load_model(
    settings: WorkerSettings,
    role: Role,
    dtype: Dtype,
    prepared: PreparedModel,
    lendable: int = 0,
    lending: "Lending | None" = None,
) -> LoadedModel:
    """Load and measure a model for its role, which may be that of a draft inside a target.

    `lendable`: bytes by which its KV may grow later, on a CPU; `lending`: its part in lending, on a
    GPU; None: it has none.
    Loads torch for a GPU alone. Raises `ModelError`, and `GroupLost` when a rank is gone before all
    are ready.
    """
    device = torch_device(settings.device)
    check_dtype(dtype, gpu=device is not None)
    check_all_reduce(settings.all_reduce, device, RankPlacement.of(os.environ).nodes)
    if device is None:
        check_prefill(settings.prefill)
        return load_on_cpu(settings, role, dtype, prepared, BEYOND[role], lendable)
    from outrider.worker.launch.load_gpu import load_on_device

    return load_on_device(settings, dtype, prepared, BEYOND[role], device, lending)


def check_prefill(kind: PrefillKind) -> None:
    """Raise `ModelError` for prompts by the vendor's library where the model runs on the CPU."""
    if kind is not PrefillKind.EXACT:
        raise ModelError(
            f"settings.prefill: {kind} (engine.prefill of a service) is not allowed here, the "
            f"library is a GPU's, and the model runs on the CPU; allowed: {PrefillKind.EXACT}"
        )


def check_all_reduce(kind: AllReduceKind, device: str | None, nodes: int) -> None:
    """Raise `ModelError` for an all-reduce that ranks on `device`, on `nodes` machines, lack."""
    if kind is AllReduceKind.GATHER:
        return
    reason = ""
    if device is None or not device.startswith(CUDA):
        reason = "flag words travel between GPUs, and the model runs on the CPU"
    elif nodes > 1:
        reason = f"flag words travel between the GPUs of one machine, and the ranks have {nodes}"
    if reason:
        raise ModelError(
            f"settings.all_reduce: {kind} (engine.allReduce of a service) is not allowed here, "
            f"{reason}; allowed: {AllReduceKind.GATHER}"
        )
