"""Which device a worker takes, on machines with and without a GPU."""

import subprocess
import sys
from pathlib import Path

import pytest

from outrider.contract.settings import Device, Dtype
from outrider.worker.errors import ModelError
from outrider.worker.host.device import check_dtype, devices_of, torch_device


def test_a_gpu_is_taken_only_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    nowhere = tmp_path / "nvidiactl"
    assert torch_device(Device.AUTO, nowhere) is None
    assert torch_device(Device.CPU, nowhere) is None
    with pytest.raises(ModelError, match=r"settings\.device: gpu .*/nvidiactl .* auto, cpu"):
        torch_device(Device.GPU, nowhere)


def test_kernels_are_interpreted_only_where_a_gpu_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert torch_device(Device.GPU, tmp_path / "nvidiactl") == "cpu"
    assert torch_device(Device.AUTO, tmp_path / "nvidiactl") is None


def test_looking_for_a_gpu_loads_no_torch_where_there_is_no_driver() -> None:
    code = (
        "import sys, pathlib; from outrider.worker.launch import run; "
        "from outrider.worker.host.device import torch_device; "
        "from outrider.contract.settings import Device; "
        "torch_device(Device.AUTO, pathlib.Path('/nowhere')); "
        "print([m for m in ('torch', 'triton') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("dtype", "gpu", "allowed"),
    [(Dtype.INT8, True, "auto, fp32, bf16, fp8"), (Dtype.FP8, False, "auto, fp32, bf16, int8")],
)
def test_numbers_of_another_device_are_refused(dtype: Dtype, gpu: bool, allowed: str) -> None:
    with pytest.raises(ModelError, match=rf"dtype: {dtype} .*; allowed: {allowed}"):
        check_dtype(dtype, gpu)
    check_dtype(dtype, not gpu)


def test_each_rank_of_a_machine_has_a_gpu_of_its_own() -> None:
    assert devices_of("cuda:0", 3, lambda: 4) == ["cuda:0", "cuda:1", "cuda:2"]
    assert devices_of("cpu", 2, lambda: 0) == ["cpu", "cpu"]
    assert devices_of(None, 2, lambda: 0) == [None, None]


def test_fewer_gpus_than_ranks_are_named() -> None:
    with pytest.raises(ModelError, match=r"tensor_parallel: 6 ranks .* a GPU and it has 4;"):
        devices_of("cuda:0", 6, lambda: 4)
