"""The GPU runner on CPU tensors, its kernels under Triton's interpreter; as `kernels/gpu`'s tests.

`tests/gpu` runs the same tests on a device.
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
