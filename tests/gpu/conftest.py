"""The tests of the kernels again, compiled, on a device: `TRITON_INTERPRET=0 pytest tests/gpu`.

Skips everything where there is no CUDA device or kernels are interpreted.
"""

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent
NEEDED = ("grpc", "numba", "safetensors", "tokenizers", "transformers")
"""By the tests of the runner, whose models are checkpoints."""
RUNNERS = ["test_gpu_[!s]*", "test_gpu_same*"]
collect_ignore_glob = [] if find_spec("triton") else ["test_*"]
if not all(map(find_spec, NEEDED)):
    collect_ignore_glob += RUNNERS


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what this folder holds, and says why it is skipped."""
    reason = missing()
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.gpu)
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))


def missing() -> str:
    """What a native run lacks; empty if nothing."""
    if not torch.cuda.is_available():
        return "no CUDA device"
    import triton

    return "set TRITON_INTERPRET=0 to compile kernels" if triton.knobs.runtime.interpret else ""


@pytest.fixture
def device() -> str:
    """Where tensors live."""
    return "cuda"


@pytest.fixture(params=["bfloat16", "float16", "float32"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    """Type of activations."""
    return getattr(torch, request.param)  # type: ignore[no-any-return]
