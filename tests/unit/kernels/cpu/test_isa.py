"""Forcing a lower instruction set: what it switches off, what it refuses, and that bits stay."""

import itertools
import os
import platform
import subprocess
import sys

import numpy as np
import pytest

from outrider.contract.settings import SettingsError
from outrider.kernels.cpu import reference
from outrider.kernels.cpu.numeric_kind import NumericKind
from outrider.kernels.jit import isa
from outrider.kernels.jit.isa import Isa
from tests.unit.kernels.cpu import integer_products

AVX512 = {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni"}
HERE = isa.available(isa.host_features(), platform.machine())
INTEGER = [i for i in HERE if i not in isa.LEAST]


def features(*names: str) -> dict[str, bool]:
    return dict.fromkeys(names, True)


def test_a_machine_has_what_its_features_say() -> None:
    zen5 = features("avx2", "fma", "avxvnni", *AVX512)
    assert isa.available(zen5, "x86_64") == (Isa.SSE, Isa.AVX2, Isa.AVXVNNI, Isa.AVX512)
    assert isa.available(features("avx2", "fma", *AVX512), "x86_64")[-2:] == (Isa.AVX2, Isa.AVX512)
    assert isa.available(features("avx2", "fma", "avx512f"), "x86_64")[-1] is Isa.AVX2
    assert isa.available({}, "x86_64") == (Isa.SSE,)
    sapphire_rapids = features("avx2", "fma", "avxvnni", *AVX512, "amx-tile", "amx-int8")
    assert isa.available(sapphire_rapids, "x86_64")[-2:] == (Isa.AVX512, Isa.AMX)
    assert isa.available(features("dotprod"), "aarch64") == (Isa.NEON, Isa.DOTPROD)


def test_the_best_is_chosen_and_what_is_not_there_is_refused() -> None:
    assert isa.choose(None, (Isa.SSE, Isa.AVX2)) is Isa.AVX2
    assert isa.choose("sse", (Isa.SSE, Isa.AVX2)) is Isa.SSE
    for name in ("avx512", "AVX2", ""):
        with pytest.raises(SettingsError, match=f"OUTRIDER_ISA: '{name}' .* sse or avx2"):
            isa.choose(name, (Isa.SSE, Isa.AVX2))


def test_nothing_beyond_the_instruction_set_is_left_on() -> None:
    has = features("sse2", "avx", "avx2", "fma", "avxvnni", "avx512f", "avx512bf16", "amx-int8")
    assert {n for n, on in isa.without(has, Isa.AVX2).items() if on} == {
        "sse2", "avx", "avx2", "fma",
    }  # fmt: skip
    assert {n for n, on in isa.without(has, Isa.SSE).items() if on} == {"sse2"}
    assert isa.without(has, Isa.AVXVNNI)["avxvnni"]


def test_amx_is_off_where_the_kernel_does_not_permit_it(monkeypatch: pytest.MonkeyPatch) -> None:
    has = dict.fromkeys(AVX512 | {"avx2", "fma", "amx-tile", "amx-int8", "amx-bf16"}, True)
    monkeypatch.setattr(isa.llvmlite.binding, "get_host_cpu_features", lambda: has)
    for permits, best in ((True, Isa.AMX), (False, Isa.AVX512)):
        monkeypatch.setattr(isa, "_permits_amx", lambda permits=permits: permits)
        found = isa.host_features.__wrapped__()
        assert isa.available(found, "x86_64")[-1] is best
        assert found["amx-bf16"] == permits


def test_arm_s_long_vectors_are_off_whatever_the_processor_has() -> None:
    assert isa.without(features("neon", "i8mm", "sve2"), Isa.I8MM) == {
        "neon": True, "i8mm": True, "sve2": False, "sve": False,
    }  # fmt: skip


def run(code: list[str], name: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {isa.VARIABLE: name}
    command = [sys.executable, *code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_an_unknown_name_stops_the_worker_with_the_names_allowed() -> None:
    code = "import outrider.kernels"
    done = run(["-c", code], "avx1024")
    assert done.returncode != 0
    assert f"OUTRIDER_ISA: 'avx1024' is not allowed; it must be {' or '.join(HERE)}" in done.stderr


def test_code_of_two_instruction_sets_lies_in_two_folders() -> None:
    code = "from outrider.kernels.jit import compiled; print(compiled.folder())"
    folders = {run(["-c", code], name).stdout for name in HERE}
    assert len(folders) == len(HERE)
    assert all(folders)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[Isa, dict[str, np.ndarray]]:
    """What `integer_products` gives on each instruction set of this machine."""
    folder, arrays = tmp_path_factory.mktemp("isa"), {}
    for name in INTEGER:
        done = run([integer_products.__file__, str(folder / name)], name)
        assert done.returncode == 0, done.stderr
        arrays[name] = dict(np.load(folder / f"{name}.npz"))
    return arrays


Found = dict[Isa, dict[str, np.ndarray]]


@pytest.mark.parametrize("name", INTEGER)
def test_an_instruction_set_runs_kinds_of_its_own(found: Found, name: Isa) -> None:
    own = Isa.AVX512 if name is Isa.AMX else name  # whose kinds it shares
    for path in ("int8", "int4"):
        assert NumericKind[str(found[name][f"{path} kind"])].isa is own


@pytest.mark.parametrize("name", INTEGER)
def test_int8_sums_are_exact(found: Found, name: Isa) -> None:
    matrix, kind = integer_products.weights(), NumericKind.INT8_AVX512
    scales = np.abs(matrix).max(axis=1) / np.float32(127)
    coded = np.rint(matrix / scales[:, None]).astype(np.int64)
    for rows in integer_products.ROWS:
        values, of_row = reference.activations(integer_products.activations(rows), kind)
        exact = ((values.astype(np.int64) - 128) @ coded.T).astype(np.float32)
        wanted = exact * scales * of_row[:, None]
        assert np.array_equal(found[name][f"int8 {rows}"], wanted), rows


@pytest.mark.parametrize("name", INTEGER)
def test_a_row_has_the_same_bits_beside_any_others(found: Found, name: Isa) -> None:
    for path, rows in itertools.product(("int8", "int4"), integer_products.ROWS):
        alone, several = found[name][f"{path} 1"][0], found[name][f"{path} {rows}"]
        assert np.array_equal(several[0], alone), (path, rows)
        assert np.array_equal(several[-1], alone), (path, rows)


@pytest.mark.parametrize("name", INTEGER)
def test_every_instruction_set_gives_the_same_bits(found: Found, name: Isa) -> None:
    for what, array in found[INTEGER[0]].items():
        if not what.endswith("kind"):
            assert np.array_equal(found[name][what], array), what
