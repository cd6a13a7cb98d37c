"""The sources of a pinned commit: taken out of the history once, or refused with the reason."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.speculation import pinned

IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@b")


def git(root: Path, *arguments: str) -> str:
    ran = subprocess.run(
        ["git", "-C", root, *IDENTITY, *arguments], check=True, capture_output=True, text=True
    )
    return ran.stdout.strip()


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """A repository with two commits; its file `worker/code` holds their number."""
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "-q")
    for folder in (*pinned.PORTIONS, pinned.EXAMPLES):
        (root / folder).mkdir()
        (root / folder / "code").write_text("1")
    git(root, "add", ".")
    git(root, "commit", "-qm", "1")
    (root / "worker" / "code").write_text("2")
    git(root, "commit", "-qam", "2")
    return root


def test_the_sources_are_those_of_the_commit(history: Path, tmp_path: Path) -> None:
    first = git(history, "rev-parse", "HEAD~1")
    tree = pinned.checkout(first[:8], tmp_path / "trees", history)
    assert tree == tmp_path / "trees" / first
    assert (tree / "worker" / "code").read_text() == "1"
    assert (history / "worker" / "code").read_text() == "2", "the clone itself stays as it is"
    assert os.listdir(tmp_path / "trees") == [first], "nothing else is left"


def test_sources_are_taken_out_once(history: Path, tmp_path: Path) -> None:
    tree = pinned.checkout("HEAD", tmp_path / "trees", history)
    (tree / "compiled").touch()
    assert (pinned.checkout("HEAD", tmp_path / "trees", history) / "compiled").exists()


def test_a_commit_outside_the_history_is_refused_with_what_helps(
    history: Path, tmp_path: Path
) -> None:
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth", "1", history.as_uri(), str(shallow))
    first = git(history, "rev-parse", "HEAD~1")
    with pytest.raises(SystemExit, match=f"commit {first}.*--unshallow.*--pinned none"):
        pinned.checkout(first, tmp_path / "trees", shallow)
    assert not (tmp_path / "trees").exists()


def test_python_finds_the_pinned_sources_first(tmp_path: Path) -> None:
    package = tmp_path / "worker" / "outrider" / "worker"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("PINNED = True\n")
    command = [sys.executable, "-P", "-c", "from outrider.worker import PINNED; print(PINNED)"]
    ran = subprocess.run(
        command, env=pinned.environment(tmp_path), check=True, capture_output=True, text=True
    )
    assert ran.stdout == "True\n"
