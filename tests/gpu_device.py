"""Fixtures of the tests of GPU kernels: the device that they run on, and its dtypes.

By default kernels run in Triton's interpreter, on CPU tensors. On a machine with a GPU,
`TRITON_INTERPRET=0 pytest -m gpu` compiles them: the same tests with the marker `gpu`. Triton
decides between the two when it is imported, so one process has one device.
"""

import os
from importlib.util import find_spec

import pytest
import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") != "0"
COMPILED_ON = os.environ.get("GPU_TESTS_DEVICE", "cuda")
"""`cpu` in a rehearsal (`tools.gpu_rehearsal`), which compiles kernels and launches none."""
DEVICE = "cpu" if INTERPRETED else pytest.param(COMPILED_ON, marks=pytest.mark.gpu)
DTYPES = ["float32", "float16"] if INTERPRETED else ["float32", "float16", "bfloat16"]
"""Dtypes to test; bfloat16 is wrong in the interpreter (triton-lang/triton issue 11584)."""
HALF = DTYPES[-1]
"""Half precision of tests that take one dtype alone, for their time or their subject."""

if INTERPRETED and find_spec("triton"):
    from tests import triton_interpreter

    triton_interpreter.hasten()


def ignored(*needed: str) -> list[str]:
    """Return the patterns of files that cannot be collected where a module is not installed."""
    return [] if all(map(find_spec, ("triton", *needed))) else ["test_*"]


@pytest.fixture(params=[DEVICE])
def device(request: pytest.FixtureRequest) -> str:
    """Where tensors live."""
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.fail("TRITON_INTERPRET=0 compiles kernels, and there is no CUDA device")
    return str(request.param)


@pytest.fixture(params=DTYPES)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    """Type of activations."""
    return getattr(torch, request.param)  # type: ignore[no-any-return]
