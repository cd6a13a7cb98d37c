from pathlib import Path

import pytest
import torch

triton = pytest.importorskip("triton")

from bench import device_facts  # noqa: E402
from bench.device_facts import BLOCK, ROUNDS  # noqa: E402
from bench.device_run import Task, attempted  # noqa: E402


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_without_a_device_it_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert device_facts.main(["--report", str(tmp_path / "facts.json")]) == 2
    assert "no CUDA device" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_reading_that_fails_says_why() -> None:
    found = attempted(Task("a", lambda: {"a": device_facts.output(["no_such_program"])}))
    assert found["failed"].startswith("FileNotFoundError")
    assert "no_such_program" in found["failed"]


def test_readings_without_a_device_are_had_and_shown() -> None:
    assert device_facts.versions()["torch"] == torch.__version__
    assert device_facts.triton_key()["sha256"]
    shown = device_facts.line({"case": "copy", "GB/s": 3000})
    assert shown.split() == ["copy", "GB/s", "3000"]


@pytest.mark.skipif(not triton.knobs.runtime.interpret, reason="kernels are compiled")
def test_every_number_is_read_once() -> None:
    source = torch.arange(2 * BLOCK * ROUNDS, dtype=torch.float32) % 7
    assert device_facts.by_triton(source).tolist() == source.view(2, -1).sum(1).tolist()
