"""The emulated Arm machine: what it says is missing, and what is chosen and compared there."""

import os
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import numpy as np
import pytest

from outrider.kernels.cpu.grouped_packing import LAYOUTS, Layout
from outrider.kernels.jit.isa import AARCH64, Isa
from tests.arm import bits, choice


def test_missing_programs_are_named_with_what_installs_them(tmp_path: Path) -> None:
    (tmp_path / "mmdebstrap").write_text("")
    (tmp_path / "mmdebstrap").chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-m", "tests.arm"],
        env=os.environ | {"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    words = "an aarch64 machine is not emulated here without qemu-user-static"
    assert done.stderr == f"tests.arm: {words}: `apt-get install qemu-user-static`\n"


@pytest.mark.parametrize("processor", AARCH64)
def test_a_processor_takes_each_property_of_layouts_but_not_all_of_them(processor: Isa) -> None:
    taken = choice.layouts_of(processor)
    assert properties(taken) == properties(LAYOUTS)
    assert len(taken) < len(LAYOUTS)


def properties(layouts: Collection[Layout]) -> set[tuple[str, object]]:
    """Return each value of each field."""
    return {pair for layout in layouts for pair in layout._asdict().items()}


@pytest.mark.parametrize(
    ("name", "shift", "allowed"),
    [("int8 3", 1e-6, False), ("logits fp32", 1e-6, True), ("logits fp32", 1.0, False)],
)
def test_layers_may_differ_in_no_bit_and_logits_in_fp32_by_a_little(
    tmp_path: Path, name: str, shift: float, allowed: bool
) -> None:
    ours = {key: np.ones((2, 3), np.float32) for key in ("int8 3", "norm", "logits fp32")}
    theirs = ours | {name: ours[name] + np.float32(shift)}
    for file, arrays in (("ours.npz", ours), ("theirs.npz", theirs)):
        np.savez(tmp_path / file, **arrays)
    words, found = bits.differences(tmp_path / "ours.npz", tmp_path / "theirs.npz")
    assert found is allowed
    assert words.startswith(f"2 of 3 arrays have the same bits; {name} differs in 6 of 6, by ")
