"""Ranks of one model on devices, as threads of one process, over real gloo on loopback.

with shared_on_device(folder, degree=3, device="cpu") as model:
    model.forward(rows)
"""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import triton
from safetensors.numpy import load_file
from torch.distributed import HashStore

from outrider.worker.gpu.model import GpuModel
from outrider.worker.gpu.pool import DevicePool
from outrider.worker.gpu.ranks import DeviceShare, LeadingGpuModel, device_group, follow
from outrider.worker.gpu.reducing import Gathered, gather_over
from outrider.worker.gpu.weights import DeviceWeights, Precision
from outrider.worker.model.config_file import read_config
from outrider.worker.model.sharding import Shard
from outrider.worker.ranks.deadline import Deadline
from outrider.worker.ranks.group import Group
from tests.gpu_models import BLOCKS, LONGEST, ROWS, SPLITS

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


def share_of(folder: Path, rank: int, degree: int, store: Any, device: str) -> DeviceShare:
    """One rank's model, which adds up what the library gathers."""
    config = read_config(folder)
    cut = Shard(config, rank, degree)
    tensors = {
        name: cut.cut(name, tensor)
        for name, tensor in load_file(folder / "model.safetensors").items()
    }
    kind = torch.float32
    weights = DeviceWeights.of(cut.config, tensors, Precision(kind), LONGEST, device)
    pool = DevicePool(cut.config, BLOCKS, LONGEST, kind, device)
    gather = gather_over(device_group(store, rank, degree, device, LOOPBACK))
    model = GpuModel(
        cut.config, weights, "fp32", pool, ROWS, BLOCKS, Gathered(gather), SPLITS, cut.first_token
    )
    return DeviceShare(model, rank, gather)


@contextlib.contextmanager
def shared_on_device(folder: Path, degree: int, device: str) -> Iterator[LeadingGpuModel]:
    """A model whose other ranks are threads; they end with the block."""
    store, failures = HashStore(), list[BaseException]()

    def follower(rank: int) -> None:
        try:
            group = Group(store, rank, degree, LOOPBACK)
            follow(share_of(folder, rank, degree, store, device), group)
        except BaseException as error:
            failures.append(error)

    ranks = [
        threading.Thread(target=follower, args=(rank,), daemon=True) for rank in range(1, degree)
    ]
    with one_launch_at_a_time():
        for thread in ranks:
            thread.start()
        group = Group(store, 0, degree, LOOPBACK)
        own = share_of(folder, 0, degree, store, device)
        model = LeadingGpuModel(read_config(folder), own, group, Deadline(lambda what: None))
        try:
            yield model
        finally:
            model.close()
            for thread in ranks:
                thread.join(60)
            assert not failures, failures
