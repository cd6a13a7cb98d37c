"""Ranks of one model on devices, as threads of one process, over real gloo on loopback.

with shared_on_device(folder, degree=3, device="cpu") as model:
    model.forward(rows)
"""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import triton
from torch.distributed import HashStore

from outrider.contract.settings import Dtype
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.gpu.device_group import DeviceGroup, join_device_group
from outrider.worker.gpu.parallel_model import LeadingGpuModel
from outrider.worker.gpu.shard import Terms
from outrider.worker.launch.gpu_rank_group import LeadingRanks, follow_on_device, lead_on_device
from outrider.worker.parallel.collectives import ProcessGroup
from outrider.worker.parallel.watchdog import Watchdog
from tests.gpu_models import BLOCKS, LONGEST, ROWS

LOOPBACK = "127.0.0.1"


@contextlib.contextmanager
def one_launch_at_a_time() -> Iterator[None]:
    """The interpreter keeps the program at hand in one place for all threads."""
    if not triton.knobs.runtime.interpret:
        yield
        return
    from triton.runtime.interpreter import GridExecutor

    lock, launch = threading.Lock(), GridExecutor.__call__

    def alone(executor: Any, *args: Any, **kwargs: Any) -> Any:
        with lock:
            return launch(executor, *args, **kwargs)

    GridExecutor.__call__ = alone
    try:
        yield
    finally:
        GridExecutor.__call__ = launch


@contextlib.contextmanager
def shared_on_device(
    folder: Path, degree: int, device: str, rows: int = ROWS
) -> Iterator[LeadingGpuModel]:
    """A model whose other ranks are threads; they end with the block."""
    prepared = PreparedModel("tiny", folder, folder, folder, "0" * 64, None)
    terms = Terms(Dtype.FP32, LONGEST, rows, BLOCKS)
    store, failures = HashStore(), list[BaseException]()

    def met(rank: int) -> tuple[ProcessGroup, DeviceGroup]:
        group = ProcessGroup(store, rank, degree, LOOPBACK)
        return group, join_device_group(store, rank, degree, device, LOOPBACK)

    def follower(rank: int) -> None:
        try:
            follow_on_device(prepared, *met(rank))
        except BaseException as error:
            failures.append(error)

    ranks = [
        threading.Thread(target=follower, args=(rank,), daemon=True) for rank in range(1, degree)
    ]
    with one_launch_at_a_time():
        for thread in ranks:
            thread.start()
        watchdog = Watchdog(lambda what: None)
        leading = LeadingRanks(*met(0), watchdog)
        model = lead_on_device(prepared, terms, lambda free: BLOCKS, leading)
        try:
            yield model
        finally:
            model.close()
            for thread in ranks:
                thread.join(60)
            assert not failures, failures
