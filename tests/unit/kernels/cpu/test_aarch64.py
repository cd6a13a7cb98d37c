"""Inner loops for aarch64, compiled here: each has the instruction that it is written for."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("aarch64_assembly.py")
PRODUCTS = re.compile(r"\b(sdot|udot|usdot|fmla|smull|mul)\b")


def products(isa: str, features: str) -> dict[str, set[str]]:
    """Return the multiplying instructions of each function."""
    command = [sys.executable, str(SCRIPT), isa, features]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    eight, four = (done.stdout.split(f"\n{name}:")[1] for name in ("int8", "int4"))
    eight = eight.split("\nint4:")[0]
    return {"int8": set(PRODUCTS.findall(eight)), "int4": set(PRODUCTS.findall(four))}


@pytest.mark.parametrize(
    ("isa", "features", "int8", "int4"),
    [
        ("dotprod", "+dotprod", "sdot", "sdot"),
        ("i8mm", "+dotprod,+i8mm", "usdot", "usdot"),
        ("neon", "", "fmla", "fmla"),
    ],
)
def test_a_step_multiplies_by_the_instruction_of_its_set(
    isa: str, features: str, int8: str, int4: str
) -> None:
    found = products(isa, features)
    integers = {"sdot", "udot", "usdot", "smull"}
    assert found["int8"] & (integers | {"fmla"}) == {int8}
    assert int4 in found["int4"]
    assert found["int4"] & integers == ({int4} & integers)


def test_compiling_for_a_machine_without_the_instruction_fails() -> None:
    command = [sys.executable, str(SCRIPT), "dotprod", ""]
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0
