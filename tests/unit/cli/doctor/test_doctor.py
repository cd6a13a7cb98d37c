"""What `outrider doctor` makes of what it finds."""

import asyncio
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from outrider.cli.doctor.checks import Check, Grade, as_json, judged, verdict
from outrider.cli.doctor.findings import Disk, Findings, disk_of, gpu_names, look, missing_packages
from outrider.cli.terminal.progress import Lines

PROCESSOR = {
    "instruction_set": "avx512",
    "threads": 2,
    "paths": [
        {"path": "fp32", "kernel": "FP32", "admitted": True},
        {"path": "bf16", "kernel": "BF16_AVX512", "admitted": False},
        {"path": "int8", "kernel": "INT8_AVX512", "admitted": True},
    ],
    "model": "SmolLM2-135M",
    "dtype": "int8",
    "seconds": {"fp32": 0.012, "int8": 0.0031},
}
MACHINE = {
    "cpu": "A processor",
    "flags": ["avx2", "avx512f"],
    "cores": 1,
    "slow_cores": 0,
    "memory_gib": 24.0,
    "python": "3.11.9",
    "packages": {"numpy": "2.1", "torch": None},
}
GOOD = Findings(
    version="0.1.0",
    machine=MACHINE,
    processor=PROCESSOR,
    disk=Disk(path="/cache", free_bytes=10**10, used_bytes=5 * 10**8, writable=True),
)


def check(name: str, **changes: Any) -> Check:
    """The first check of a name."""
    return next(c for c in judged(dataclasses.replace(GOOD, **changes)) if c.name == name)


def test_a_good_machine_runs_a_service() -> None:
    checks = judged(GOOD)
    assert {one.grade for one in checks} == {Grade.OK}
    assert "`outrider serve MODEL`" in verdict(checks)
    assert as_json(checks, GOOD)["runs"] is True
    json.dumps(as_json(checks, GOOD), allow_nan=False)


def test_the_processor_is_said_with_its_instruction_sets() -> None:
    shown = ("A processor", "1 processor", "24.0 GiB", "avx2, avx512f")
    assert all(fact in check("processor").words for fact in shown)


def test_a_mac_s_slower_cores_are_said_to_get_no_thread() -> None:
    machine = MACHINE | {"cores": 4, "slow_cores": 6}
    words = "4 processors (performance cores; 6 slower ones get no thread by default)"
    assert words in check("processor", machine=machine).words


def test_the_paths_that_the_probe_refuses_are_named_and_stop_nothing() -> None:
    one = check("kernels")
    assert one.grade is Grade.OK
    assert one.words.startswith("avx512: fp32, int8; bf16 refused")


def test_auto_s_choice_is_said_with_what_it_was_chosen_from() -> None:
    shown = ("takes int8", "SmolLM2-135M", "int8 3.10 ms, fp32 12.00 ms", "2 threads")
    assert all(fact in check("dtype").words for fact in shown)


def test_no_numeric_path_stops_a_run() -> None:
    refused = [path | {"admitted": False} for path in PROCESSOR["paths"]]  # type: ignore[operator,union-attr]
    processor = PROCESSOR | {"paths": refused, "dtype": None, "seconds": {}}
    assert check("kernels", processor=processor).grade is Grade.STOPS


@pytest.mark.parametrize(
    ("name", "changes", "grade", "words"),
    [
        ("packages", {"missing": ("numba",)}, Grade.STOPS, "missing: numba"),
        ("kernels", {"processor": {}, "problem": "it fell"}, Grade.STOPS, "it fell"),
        ("GPUs", {"gpus": ("NVIDIA H200",)}, Grade.WARNING, "1: NVIDIA H200"),
        ("GPUs", {"gpus": ("A", "B"), "torch": "2.11"}, Grade.OK, "2: A, B"),
        ("GPUs", {}, Grade.OK, "none"),
        (
            "model cache",
            {"disk": dataclasses.replace(GOOD.disk, free_bytes=10**9)},
            Grade.WARNING,
            "/cache: 500.0 MB used, 1.0 GB free",
        ),
        (
            "model cache",
            {"disk": dataclasses.replace(GOOD.disk, writable=False)},
            Grade.STOPS,
            "/cache: 500.0 MB used, 10.0 GB free; it cannot be written",
        ),
        ("port", {"taken": (50051,)}, Grade.WARNING, "127.0.0.1:50051 is in use"),
    ],
)
def test_each_finding_has_its_weight(
    name: str, changes: dict[str, Any], grade: Grade, words: str
) -> None:
    one = check(name, **changes)
    assert one.grade is grade
    assert one.words.startswith(words)


def test_what_stops_a_run_is_in_the_verdict() -> None:
    checks = judged(dataclasses.replace(GOOD, missing=("numba",)))
    assert verdict(checks).startswith("No service runs here")
    assert "packages" in verdict(checks)
    assert as_json(checks, GOOD)["runs"] is False


def test_ports_that_are_taken_are_no_obstacle_with_other_ones() -> None:
    words = "`outrider serve MODEL%s`"
    one = judged(dataclasses.replace(GOOD, taken=(8000,)))
    both = judged(dataclasses.replace(GOOD, taken=(8000, 50051)))
    assert words % " --port 0" in verdict(one)
    assert words % " --grpc-port 0 --port 0" in verdict(both)
    assert as_json(both, GOOD)["runs"] is True


def test_gpus_are_named_by_their_driver(tmp_path: Path) -> None:
    for number in range(2):
        folder = tmp_path / f"0000:0{number}:00.0"
        folder.mkdir()
        (folder / "information").write_text(f"Model: \t\t NVIDIA H20{number}\nIRQ:  1\n")
    assert gpu_names(tmp_path) == ("NVIDIA H200", "NVIDIA H201")


def test_a_cache_that_is_not_there_yet_is_judged_by_the_folder_above(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "a").write_bytes(b"12345")
    (tmp_path / "models" / "b").symlink_to("a")
    (tmp_path / "models" / "c").symlink_to("nowhere")
    assert disk_of(tmp_path).used_bytes == 5
    absent = disk_of(tmp_path / "not" / "there")
    assert (absent.used_bytes, absent.writable, absent.free_bytes > 0) == (0, True, True)


def test_nothing_of_a_worker_is_missing_here_and_an_extra_without_packages_misses_none() -> None:
    assert missing_packages("worker") == ()
    assert missing_packages("no such extra") == ()


def test_a_worker_that_cannot_say_is_a_finding_and_no_error(tmp_path: Path) -> None:
    said = 'import json; print(json.dumps({"error": "OUTRIDER_ISA: wrong"}))'
    found = asyncio.run(look(tmp_path, Lines(), (sys.executable, "-c", said)))
    assert (found.problem, found.processor) == ("OUTRIDER_ISA: wrong", {})


def test_a_package_of_a_worker_that_is_not_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "outrider-9.dist-info"
    info.mkdir()
    wanted = (
        "numpy>=2 ; extra == 'worker'",
        "no-such-package[x]>=1; extra == 'worker'",
        "nor-this; extra == 'cli'",
        "nor-here; sys_platform == 'x' and extra == 'worker'",
    )
    lines = ["Metadata-Version: 2.1", "Name: outrider", "Version: 9"]
    lines += [f"Requires-Dist: {line}" for line in wanted]
    (info / "METADATA").write_text("\n".join((*lines, "", "")))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert missing_packages("worker") == ("no-such-package",)
