import pytest

pytest.importorskip("triton")

from bench.compiled import PAGE, TRITONS, page, read, spilling, wanted
from bench.gpu.kernel_compiler import digest, waits_first
from outrider.kernels.gpu.all_reduce import PROGRAMS
from outrider.kernels.gpu.linear_shapes import SHARED_BY
from outrider.kernels.gpu.linear_sum import RECEIVERS


def test_report_and_page_have_every_kernel_as_it_stands() -> None:
    report = read()
    assert PAGE.read_text(encoding="utf-8") == page(report)
    assert tuple(report) == TRITONS
    stands = [digest(compilation, sm) for _, compilation, sm in wanted()]
    for version, kernels in report.items():
        compiled = [one["digest"] for one in kernels]
        assert compiled == stands, f"run `python -m bench.compiled` with triton {version}"


def test_no_kernel_spills_more_than_it_may() -> None:
    assert [one for kernels in read().values() for one in spilling(kernels)] == []


def test_programs_that_wait_for_each_other_all_have_a_place() -> None:
    """Even where there are as few processors as an A100 has, 108, each of 65,536 registers."""
    most = {"all_reduce": PROGRAMS, "linear_sum": RECEIVERS}
    kernels = [one for kernels in read().values() for one in kernels if one["module"] in most]
    assert {one["module"] for one in kernels} == {*most}
    for one in kernels:
        registers = 32 * one["warps"] * -(-one["registers"] // 8) * 8
        places = 108 * min(
            65536 // registers, SHARED_BY[one["architecture"]] // max(one["shared"], 1)
        )
        assert places >= most[one["module"]], one["name"]


def test_no_tile_of_int4_returns_to_shared_memory() -> None:
    kernels = [one for kernels in read().values() for one in kernels if "int4" in one["name"]]
    assert kernels
    assert {one["stores"] for one in kernels} == {0}


def test_a_dependent_launch_has_to_wait_before_it_reads_or_writes() -> None:
    wait, load = "griddepcontrol.wait;\n", "ld.global.b32 %r1, [%rd1];\n"
    assert waits_first(f"mov.u32 %r2, 0;\n{wait}{load}")
    assert waits_first(wait)
    for early in (f"{load}{wait}", load, f"cp.async.cg.shared.global [%r3], [%rd1];\n{wait}"):
        assert not waits_first(early)
