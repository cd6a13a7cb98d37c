"""A rehearsal compiles for a device that is not there, finds what is compiled, and names faults."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")
if sys.platform != "linux":
    pytest.skip("Triton's compiler for GPUs is Linux's", allow_module_level=True)

from tools.gpu_rehearsal import __main__ as rehearsal

FAULTY = """
import pytest, torch, triton, triton.language as tl

@triton.jit
def good_kernel(out):
    tl.store(out + tl.arange(0, 32), 1.0)

@triton.jit
def odd_kernel(out):
    tl.store(out + tl.arange(0, 3), 1.0)

@triton.jit
def large_kernel(x, out):
    at = tl.arange(0, 256)[:, None] * 512 + tl.arange(0, 512)[None, :]
    down = tl.arange(0, 512)[:, None] * 256 + tl.arange(0, 256)[None, :]
    total = tl.zeros([256, 256], tl.float32)
    for turn in range(4):
        total = tl.dot(tl.load(x + at + turn), tl.load(x + down + turn), total)
    tl.store(out + tl.arange(0, 256)[:, None] * 256 + tl.arange(0, 256)[None, :], total)

pytestmark = pytest.mark.gpu
X = torch.zeros(512 * 512, dtype=torch.float16)
OUT = torch.zeros(256 * 256)

def test_good():
    good_kernel[(1,)](OUT)
    assert OUT[0] == 1, "was not launched, which counts for nothing here"

def test_odd():
    odd_kernel[(1,)](OUT)

def test_large():
    large_kernel[(1,)](X, OUT, num_stages=4)

def test_grid():
    good_kernel[(1, 70000)](OUT)
"""


def test_a_second_process_finds_what_the_first_has_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(rehearsal.TESTS, "B", ("tests/unit/kernels/gpu/test_rank_sum.py",))
    words = ["--stages", "B", "--jobs", "1", "--cache", str(tmp_path / "cache")]
    found = []
    for _ in range(2):
        assert rehearsal.main(words) == 0
        found.append(capsys.readouterr().out)
    first, second = (rehearsal.RAN.findall(text.replace(" tests", " passed")) for text in found)
    assert first == second != ["0"]
    assert " 0 compiled" not in found[0]
    assert " 0 compiled" in found[1]
    assert any((tmp_path / "cache").rglob("*.cubin"))


def test_a_start_compiles_few_kernels(tmp_path: Path) -> None:
    found = rehearsal.rehearse("start", tmp_path / "cache", 1, 90)
    assert not found.failures
    assert 0 < len(found.kernels) <= 25  # each takes a second or two on a worker's first start


def test_what_does_not_compile_fit_or_launch_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_faulty.py").write_text(FAULTY, encoding="utf-8")
    (tmp_path / "test_broken.py").write_text("import no_such_module\n", encoding="utf-8")
    monkeypatch.setitem(rehearsal.TESTS, "B", (str(tmp_path),))
    words = ["--stages", "B", "--jobs", "1", "--cache", str(tmp_path / "cache")]
    assert rehearsal.main(words) == 1
    said = capsys.readouterr().out
    assert "1 not collected" in said
    assert "3 failed" in said
    for test, error in {
        "test_odd": "CompilationError",
        "test_large": "OutOfResources",
        "test_grid": "ValueError",
    }.items():
        assert f"{test}: {error}" in said
    assert "test_good" not in said


def test_a_folder_in_the_checkout_serves_any_checkout(tmp_path: Path) -> None:
    """The cache of Triton holds the paths of its files, as the environment names their folder."""
    inside, outside = rehearsal.ROOT / "some" / "kernels", tmp_path / "kernels"
    assert [rehearsal._relative(path) for path in (inside, outside)] == [
        "some/kernels",
        str(outside.resolve()),
    ]


def test_what_is_missing_or_cannot_be_written_is_said_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert rehearsal.main(["--cache", str(tmp_path / "file")]) == 2
    said = capsys.readouterr()
    assert "--cache cannot be written" in said.err
    assert said.out == ""


def test_a_stage_that_launches_nothing_of_ours_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        rehearsal.main(["--stages", "A"])
    assert "'A' cannot be rehearsed; allowed: B, C, D, E, F, H" in capsys.readouterr().err
