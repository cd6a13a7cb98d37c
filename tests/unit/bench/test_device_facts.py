import pytest
import torch

triton = pytest.importorskip("triton")

from bench.gpu import device_facts  # noqa: E402
from bench.gpu.device_facts import BLOCK, ROUNDS  # noqa: E402
from bench.gpu.device_run import Task, attempted  # noqa: E402


def test_a_reading_that_fails_says_why() -> None:
    found = attempted(Task("a", lambda: {"a": device_facts.output(["no_such_program"])}))
    assert found["failed"].startswith("FileNotFoundError")
    assert "no_such_program" in found["failed"]


@pytest.mark.skipif(not triton.knobs.runtime.interpret, reason="kernels are compiled")
def test_every_number_is_read_once() -> None:
    source = torch.arange(2 * BLOCK * ROUNDS, dtype=torch.float32) % 7
    assert device_facts.by_triton(source).tolist() == source.view(2, -1).sum(1).tolist()
