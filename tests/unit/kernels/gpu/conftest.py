"""Kernels under Triton's interpreter: CPU tensors in float32 and float16.

bfloat16 is wrong there (triton-lang/triton issue 11584); `tests/gpu` runs the same tests in it.
"""

from importlib.util import find_spec

import pytest
import torch

collect_ignore_glob = [] if find_spec("triton") else ["test_*"]


@pytest.fixture
def device() -> str:
    """Where tensors live."""
    import triton

    if not triton.knobs.runtime.interpret:
        pytest.skip("TRITON_INTERPRET=0: only tests/gpu runs compiled kernels")
    return "cpu"


@pytest.fixture(params=["float32", "float16"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    """Type of activations."""
    return getattr(torch, request.param)  # type: ignore[no-any-return]
