"""`outrider distil` as a user runs it: ended anywhere it goes on; what it refuses."""

import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from outrider.cli.lab.distil import DISTILLATION
from outrider.contract.version import missing_extra
from outrider.distil.distillation import Distillation
from outrider.distil.errors import DistilError
from outrider.distil.progress import Progress
from outrider.distil.recipe import read_recipe
from outrider.kernels.jit import compiled
from outrider.worker.errors import WorkerError
from tests.tiny_models import write_tiny

CLI = (sys.executable, "-P", "-c", "from outrider.cli.app import main; main()")
SMALL = {
    "tokens": 12_000,
    "epochs": 1.5,
    "rounds": 1,
    "outputs": 200,
    "slots": 32,
    "layers": [0, 2],
}
KILLED_AT = (
    '"stage": "answers"',
    "training, step 50",
    '"stage": "guesses 1"',
    "round 1, step 0",
    '"stage": "evaluation"',
)
"""Words of the line at which each run is killed, one after the other."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A distillation that nothing ended."""

    uri: str
    """URI of the distillation's target."""
    out: Path
    result: dict[str, Any]


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return write_target(tmp_path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    base = tmp_path_factory.mktemp("whole")
    uri, out = write_target(base), base / "whole"
    return Whole(uri, out, finish(start(uri, out))["result"])


def write_target(folder: Path) -> str:
    return f"file://{write_tiny(folder / 'target', vocab=260, layers=3)}"


def environment(folder: Path) -> dict[str, str]:
    """`folder` as its home, and the compiled code that this process has."""
    return os.environ | {
        "HOME": str(folder),
        "NUMBA_CACHE_DIR": str(compiled.folder().parent),
        "OMP_NUM_THREADS": "1",
    }


def recipe(uri: str, out: Path, **given: Any) -> Path:
    """The file of one that tests on four prompts alone, which is quick."""
    tested = out.parent / "tested.txt"
    tested.write_text("Why?\nHow?\nWho?\nTell me about tides.\n")
    every = {"test_prompts": str(tested)} | SMALL | given | {"target": uri, "out": str(out)}
    return written(every, out)


def written(fields: dict[str, Any], out: Path) -> Path:
    """The file of a recipe."""
    file = out.parent / f"{out.name}.yaml"
    file.write_text(json.dumps(fields))
    return file


def start(uri: str, out: Path, **given: Any) -> "subprocess.Popen[str]":
    """Begin a distillation."""
    return subprocess.Popen(
        [*DISTILLATION, str(recipe(uri, out, **given))],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(out.parent),
    )


def finish(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """Wait for the end; return the last record."""
    lines, _ = process.communicate()
    last: dict[str, Any] = json.loads(lines.splitlines()[-1])
    return last


def kill_at(process: "subprocess.Popen[str]", words: str) -> None:
    """SIGKILL at the first line with these words."""
    assert process.stdout is not None
    for line in process.stdout:
        if words in line:
            process.send_signal(signal.SIGKILL)
            break
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.mark.slow
def test_a_draft_killed_at_every_stage_is_the_draft_that_was_not(whole: Whole) -> None:
    cut = whole.out.parent / "cut"
    for words in KILLED_AT:
        kill_at(start(whole.uri, cut), words)
    found = finish(start(whole.uri, cut))["result"]
    assert not list(cut.rglob("*.part"))
    assert sha256(cut / "model.safetensors") == sha256(whole.out / "model.safetensors")
    assert untimed(found) == untimed(whole.result)
    assert found["draft"]["sha256"] == sha256(cut / "model.safetensors")
    first, last = (found["training"][0]["curve"][i]["divergence"] for i in (0, -1))
    assert last < first
    assert found["held_out"]["tokens_per_pass"]["8"] > 1
    assert (cut / "report.png").stat().st_size > 1000
    assert found["draft"]["sha256"] in (cut / "README.md").read_text()


def untimed(result: dict[str, Any]) -> dict[str, Any]:
    """Without what a machine takes for a pass."""
    held_out = {k: v for k, v in result["held_out"].items() if k != "pass_seconds"}
    return result | {"held_out": held_out}


@pytest.mark.slow
def test_a_round_goes_on_without_features_but_not_with_another_draft(whole: Whole) -> None:
    out = shutil.copytree(whole.out, whole.out.parent / "round")
    (out / "work" / "round-1" / "features-00000.npy").unlink()
    (out / "work" / "training-1.pt").unlink()
    assert finish(start(whole.uri, out))["result"]["draft"] == whole.result["draft"]
    for number in (0, 1):
        (out / "work" / f"training-{number}.pt").unlink()
    error = refused(whole.uri, out, learning_rate=2e-3)
    assert "round-1 holds guesses of another draft: draft " in error


def refused(uri: str, out: Path, **given: Any) -> str:
    """What a process says that ends with the status of a bad recipe."""
    process = start(uri, out, **given)
    error: str = finish(process)["error"]
    assert process.returncode == 2
    return error


def refused_here(uri: str, out: Path, **given: Any) -> str:
    """The same of one that is refused before it takes its folder, without the process."""
    with pytest.raises((DistilError, WorkerError)) as raised:
        Distillation.begin(read_recipe(recipe(uri, out, **given)), out.parent / "cache", Progress())
    assert not out.joinpath("work").exists()
    return str(raised.value)


@pytest.mark.slow
def test_answers_of_another_run_are_trained_on(uri: str, tmp_path: Path) -> None:
    quick = {"tokens": 3_000, "epochs": 0.5, "rounds": 0}
    second, out = tmp_path / "second", tmp_path / "out"
    wrote = finish(start(uri, second, **quick, seed=2, only_answers=True))["result"]
    asked = {**quick, "seed": 1, "answers_from": [str(second)]}
    kill_at(start(uri, out, **asked), "training, step 0")
    found = finish(start(uri, out, **asked))["result"]
    taken = found["data"]["of_other_runs"]
    assert 0 < taken["chats"] <= wrote["chats"] - 4, "four are held out there"
    assert 0 < taken["tokens"] < wrote["tokens"]
    assert f"and {taken['tokens']:,} in {taken['chats']:,} in other runs" in (
        (out / "README.md").read_text()
    )
    assert "templates (in second)" in (out / "README.md").read_text()
    refused = finish(start(uri, out, **quick, seed=1))
    assert "of another recipe" in refused["error"]


def test_a_full_disk_leaves_a_folder_that_goes_on(uri: str, tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    out = tmp_path / "draft"
    asked = SMALL | {"target": uri, "out": str(out), "only_answers": True}
    full = subprocess.run(
        [*DISTILLATION, str(written(asked, out))],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(tmp_path),
        preexec_fn=limit,
        check=False,
    )
    assert full.returncode == 2
    error = json.loads(full.stdout.splitlines()[-1])["error"]
    assert "File too large" in error
    assert "the same command goes on" in error
    assert not list(out.rglob("*.part"))
    found = finish(start(uri, out, only_answers=True))["result"]
    assert found["tokens"] >= SMALL["tokens"]


def without_ids(target: Path) -> None:
    file = target / "tokenizer.json"
    fields = json.loads(file.read_text())
    fields["model"]["vocab"], fields["added_tokens"] = {}, []
    file.write_text(json.dumps(fields))


def without_an_end(target: Path) -> None:
    ends = {"eos_token_id": None, "eos_token": None}
    for name in ("config.json", "generation_config.json", "tokenizer_config.json"):
        fields = json.loads((target / name).read_text())
        (target / name).write_text(json.dumps(fields | ends))
    template = target / "chat_template.jinja"
    template.write_text(template.read_text().replace("<|end|>", ""))


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (without_ids, "the target's tokenizer has no ids"),
        (without_an_end, "names no token that ends an answer"),
    ],
)
def test_a_target_that_cannot_be_used_is_refused_at_once(
    uri: str, tmp_path: Path, harm: Callable[[Path], None], message: str
) -> None:
    harm(tmp_path / "target")
    assert message in refused_here(uri, tmp_path / "draft")


def test_bad_input_is_said_before_anything_is_written(uri: str, tmp_path: Path) -> None:
    out = tmp_path / "draft"
    assert "nowhere does not exist" in refused("file:///nowhere", out)
    assert "nowhere does not exist" in refused_here("file:///nowhere", out)
    assert "the target has 0 to 2" in refused_here(uri, out, layers=[0, 3])
    assert "no such file" in refused_here(uri, out, prompts=["gone.txt"])
    prompts = [few(tmp_path)]
    assert "2 prompts are too few" in refused_here(uri, out, prompts=prompts, test_prompts=None)
    assert "answers will take" in refused(uri, out, tokens=10**12)
    assert not list(out.rglob("chats-*"))
    odd = tmp_path / "odd"
    (odd / "work" / "answers" / "recipe.json").mkdir(parents=True)
    assert "Is a directory" in refused(uri, odd)
    assert "the target's own folder" in refused_here(uri, tmp_path / "target")


def few(folder: Path) -> str:
    file = folder / "few.txt"
    file.write_text("Why?\nHow?\n")
    return str(file)


def test_a_folder_of_another_recipe_is_refused(uri: str, tmp_path: Path) -> None:
    out = tmp_path / "draft"
    found = finish(start(uri, out, only_answers=True))["result"]
    assert "answers of another recipe: seed 0, not 1" in refused(uri, out, seed=1)
    other = f"file://{write_tiny(tmp_path / 'other', vocab=260, layers=3, seed=5)}"
    assert "answers of another recipe: target" in refused(other, out)
    more = finish(start(uri, out, only_answers=True, tokens=2 * found["tokens"]))["result"]
    assert more["chats"] > found["chats"]


def test_a_machine_without_torch_is_told_what_to_install(uri: str, tmp_path: Path) -> None:
    (tmp_path / "absent").mkdir()
    (tmp_path / "absent" / "torch.py").write_text("raise ImportError(\"No module named 'torch'\")")
    paths = [str(tmp_path / "absent"), os.environ.get("PYTHONPATH", "")]
    run = subprocess.run(
        [*CLI, "distil", str(recipe(uri, tmp_path / "draft"))],
        capture_output=True,
        text=True,
        env=environment(tmp_path) | {"PYTHONPATH": os.pathsep.join(paths)},
        check=False,
    )
    assert run.returncode == 1
    assert "No module named 'torch'" in run.stderr
    assert missing_extra("distil") in run.stderr
