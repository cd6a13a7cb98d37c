"""What is found and what is refused where torch and Triton are installed."""

from pathlib import Path

import pytest

from outrider.contract.settings import Device, ModelSettings, Role, WorkerSettings
from outrider.worker.errors import ModelError
from outrider.worker.host.device import torch_device
from outrider.worker.host.torch_extra import check, missing


def test_nothing_is_refused() -> None:
    assert missing() == ""
    model = ModelSettings(uri="file:///tiny")
    check(WorkerSettings(role=Role.TARGET, name="tiny", model=model, tensor_parallel=2))


def test_a_gpu_without_a_compiler_is_left_alone_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    driver = tmp_path / "nvidiactl"
    driver.touch()
    for name in ("CC", "TRITON_INTERPRET"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert torch_device(Device.AUTO, driver) is None
    assert "there is a GPU, but there is no C compiler (gcc, clang)" in caplog.text
    with pytest.raises(ModelError, match=r"gpu .* is not allowed here, there is no C compiler"):
        torch_device(Device.GPU, driver)
