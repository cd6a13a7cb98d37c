"""Triton's interpreter as tests hasten it: it computes what it computed, and leaves no trace."""

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime import interpreter

from tests import triton_interpreter

MOST = 2**31 - 1


@triton.jit
def sum_of(a, b):
    return a + b


@triton.jit
def sum_kernel(a, b, out):
    ids = tl.arange(0, 2)
    tl.store(out + ids, sum_of(tl.load(a + ids), tl.load(b + ids)))


@triton.jit
def total_kernel(a, out):
    tl.store(out, tl.sum(tl.load(a + tl.arange(0, 2)), axis=0))


def added(a: list[int], b: list[int], dtype: torch.dtype) -> list[float]:
    out = torch.full((2,), -1, dtype=dtype)
    sum_kernel[(1,)](torch.tensor(a, dtype=dtype), torch.tensor(b, dtype=dtype), out)
    return out.tolist()


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.float16, torch.float32])
def test_numbers_are_added(dtype: torch.dtype) -> None:
    assert added([7, -5], [3, 4], dtype) == [10, -1]


def test_integers_run_over_as_on_a_device() -> None:
    assert added([MOST, 1], [1, 1], torch.int32) == [-MOST - 1, 2]


def test_the_language_is_tritons_own_again_after_a_launch() -> None:
    assert added([1, 2], [3, 4], torch.int32) == [4, 6]
    assert tl.core.is_builtin(tl.load)
    assert tl.core.is_builtin(tl.tensor.__add__)


def test_functions_of_the_standard_library_follow_and_precede_others() -> None:
    out = torch.zeros(1, dtype=torch.int32)
    for _ in range(2):
        total_kernel[(1,)](torch.tensor([20, 22], dtype=torch.int32), out)
        assert out.item() == 42
        assert added([6, 3], [7, 5], torch.int32) == [13, 8]


@pytest.mark.parametrize(
    "name", ["int1", "int8", "uint32", "int64", "float16", "float32", "bfloat16"]
)
def test_numpys_types_are_those_that_triton_finds(name: str) -> None:
    element = getattr(tl, name)
    for type_ in (element, tl.block_type(element, [4]), tl.pointer_type(element)):
        for _ in range(2):
            assert interpreter._get_np_dtype(type_) == triton_interpreter._triton_np_dtype(type_)
