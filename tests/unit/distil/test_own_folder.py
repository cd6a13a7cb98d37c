"""The folder of a distillation: not its target's, not another's, and one run at a time."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.distil.errors import BadRecipe
from outrider.distil.own_folder import check_folder, lock, lock_to_read
from outrider.distil.recipe import Recipe
from outrider.distil.whole_files import write_json

LOCKED = """
import sys
from pathlib import Path
from outrider.distil.own_folder import lock
lock(Path(sys.argv[1]))
print("locked", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def held_by_another(code: str, folder: Path) -> Iterator[None]:
    """Another process has a folder's lock."""
    command = [sys.executable, "-c", code, str(folder)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        yield
        other.communicate()


def recipe(target: Path, out: Path) -> Recipe:
    target.parent.mkdir(exist_ok=True)
    if target.suffix:
        target.touch()
    else:
        target.mkdir(exist_ok=True)
        (target / "config.json").touch()
    return Recipe(target=f"file://{target}", out=out)


def test_a_draft_is_not_written_over_its_target(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "here")
    for target, out in [("here", "here"), ("here/a.gguf", "here"), ("here", "there/../here")]:
        with pytest.raises(BadRecipe, match="here is the target's own folder"):
            check_folder(recipe(tmp_path / target, tmp_path / out))
    with pytest.raises(BadRecipe, match="link is the target's own folder"):
        check_folder(recipe(tmp_path / "here", link))


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "README.md"])
def test_files_of_others_are_not_written_over(tmp_path: Path, name: str) -> None:
    asked = recipe(tmp_path / "target", tmp_path / "out")
    check_folder(asked)
    asked.out.mkdir()
    check_folder(asked)
    (asked.out / name).write_text("of others")
    with pytest.raises(BadRecipe, match=f"out has {name}, and no work"):
        check_folder(asked)
    write_json(asked.answers / "recipe.json", {})
    check_folder(asked)


def test_a_folder_has_one_run_at_a_time(tmp_path: Path) -> None:
    with held_by_another(LOCKED, tmp_path):
        for take in (lock, lock_to_read):
            with pytest.raises(BadRecipe, match="another outrider distil is at work in"):
                take(tmp_path)
    lock(tmp_path)


def test_several_read_a_folders_answers_at_a_time_while_none_is_written(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    lock_to_read(tmp_path)
    assert not (tmp_path / "work" / ".lock").exists(), "one that was copied is left as it is"
    (tmp_path / "work" / ".lock").touch()
    with held_by_another(LOCKED.replace("import lock", "import lock_to_read as lock"), tmp_path):
        lock_to_read(tmp_path)
        with pytest.raises(BadRecipe, match="another outrider distil is at work in"):
            lock(tmp_path)
