"""Pytest plugin of a rehearsal: `gpu` tests launch their kernels for the device that is not there.

What a kernel should have written was not written, so a test may fail: only an error of Triton's, or
of a launch, counts (`FAILURES`).
"""

import os

import pytest
from tools.gpu_rehearsal import driver

from outrider.worker.host import device

driver.install()
device.torch_device = lambda asked: "cpu"  # an engine that is told to run on a GPU

FAILURES = "GPU_REHEARSAL_FAILURES"
"""Environment variable: file to which tests that fail in Triton are appended, a line each."""


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):  # type: ignore[no-untyped-def]
    """Write down what failed in a launch."""
    yield
    if call.excinfo is None or call.excinfo.errisinstance(AssertionError):
        return
    error = call.excinfo.value
    in_launch = any("triton" in str(entry.path) for entry in call.excinfo.traceback)
    if type(error).__module__.startswith("triton") or in_launch:
        with open(os.environ[FAILURES], "a", encoding="utf-8") as file:
            file.write(f"{item.nodeid}: {driver.said(error)}\n")
