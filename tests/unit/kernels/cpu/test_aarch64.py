"""Inner loops for aarch64, compiled here: each has the instruction that it is written for."""

import re
import subprocess
import sys

import pytest

PRODUCTS = re.compile(r"^(sdot|udot|usdot|usmmla|fmla|smull|mul)\b", re.MULTILINE)
INTEGERS = {"sdot", "udot", "usdot", "usmmla", "smull"}


def products(isa: str, rows: int) -> tuple[set[str], set[str]]:
    """Return the multiplying instructions of int8's loop and of Q4_K's."""
    command = [sys.executable, "-m", "bench.inner_loops", "--isa", isa, "--rows", str(rows)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    eight, four = done.stdout.split("q4_k:")
    return {*PRODUCTS.findall(eight)}, {*PRODUCTS.findall(four)}


@pytest.mark.parametrize(
    ("isa", "rows", "int8", "integers"),
    [
        ("neon", 4, {"fmla"}, set()),
        ("dotprod", 4, {"sdot"}, {"sdot"}),
        ("i8mm", 1, {"usdot"}, {"usdot"}),
        ("i8mm", 2, {"usmmla"}, {"usmmla"}),
        ("i8mm", 5, {"usdot", "usmmla"}, {"usdot", "usmmla"}),
        ("i8mm", 8, {"usmmla"}, {"usmmla"}),
    ],
)
def test_a_step_multiplies_by_the_instruction_of_its_set(
    isa: str, rows: int, int8: set[str], integers: set[str]
) -> None:
    of_int8, of_q4_k = products(isa, rows)
    assert of_int8 & (INTEGERS | {"fmla"}) == int8
    assert of_q4_k & INTEGERS == integers
    assert "fmla" in of_q4_k
