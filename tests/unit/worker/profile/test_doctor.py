"""What a worker says of its machine's processor."""

import json

import numba
import pytest

from outrider.kernels.cpu.numeric_kind import NumericPath
from outrider.kernels.jit import isa
from outrider.kernels.jit.compiled import at_first_compilation
from outrider.worker.costs.numeric_path import CHOSEN
from outrider.worker.model.config import Family, ModelConfig
from outrider.worker.profile import doctor

TINY = ModelConfig(
    family=Family.LLAMA,
    hidden=64,
    ffn=128,
    layers=6,
    heads=4,
    kv_heads=2,
    head_dim=16,
    vocab=512,
    context=256,
    norm_eps=1e-5,
    rope_theta=10_000.0,
)


def test_every_path_is_probed_and_auto_chooses_among_the_admitted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert doctor.main(TINY) == 0
    *stages, found = map(json.loads, capsys.readouterr().out.splitlines())
    steps = [line["stage"] for line in stages if "compiling" not in line["stage"]]
    assert steps == ["probing numeric types", "timing passes"]
    assert found["instruction_set"] == isa.current()
    assert [one["path"] for one in found["paths"]] == [str(path) for path in NumericPath]
    admitted = {one["path"] for one in found["paths"] if one["admitted"]}
    assert set(found["seconds"]) == admitted & set(CHOSEN)
    assert found["dtype"] in found["seconds"]
    assert all(seconds > 0 for seconds in found["seconds"].values())


def test_only_what_really_compiles_is_said_to_compile(capsys: pytest.CaptureFixture[str]) -> None:
    def stages() -> list[str]:
        assert doctor.main(TINY) == 0
        lines = map(json.loads, capsys.readouterr().out.splitlines())
        return [line["stage"] for line in lines if "stage" in line]

    stages()
    assert stages() == ["probing numeric types", "timing passes"]
    with at_first_compilation(doctor.say_compiling):
        assert numba.njit(lambda value: value + 1)(1) == 2
        assert numba.njit(lambda value: value + 2)(1) == 3
    (line,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert line == {"stage": "compiling kernels, only the first time", "done": 0, "total": 2}


def test_an_instruction_set_that_is_none_is_an_error_in_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(isa.VARIABLE, "mmx")
    isa.current.cache_clear()
    try:
        assert doctor.main(TINY) == 1
    finally:
        isa.current.cache_clear()
    error = json.loads(capsys.readouterr().out.splitlines()[-1])["error"]
    assert error.startswith("OUTRIDER_ISA: 'mmx' is not allowed; it must be ")
