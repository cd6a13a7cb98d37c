import pytest

triton = pytest.importorskip("triton")

from bench.compiled import MOST_STACK, PAGE, page, read, wanted  # noqa: E402
from bench.gpu.kernel_compiler import digest, waits_first  # noqa: E402


def test_report_and_page_have_every_kernel_as_it_stands() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(read())
    if read()["triton"] != triton.__version__:
        pytest.skip("the report was made by another triton")
    compiled = [one["digest"] for one in read()["kernels"]]
    stands = [digest(compilation, sm) for _, compilation, sm in wanted()]
    assert compiled == stands, "run `python -m bench.compiled`"


def test_no_kernel_spills() -> None:
    assert [one for one in read()["kernels"] if one["stack"] > MOST_STACK] == []


def test_a_dependent_launch_has_to_wait_before_it_reads_or_writes() -> None:
    wait, load = "griddepcontrol.wait;\n", "ld.global.b32 %r1, [%rd1];\n"
    assert waits_first(f"mov.u32 %r2, 0;\n{wait}{load}")
    assert waits_first(wait)
    for early in (f"{load}{wait}", load, f"cp.async.cg.shared.global [%r3], [%rd1];\n{wait}"):
        assert not waits_first(early)
