"""Parts of the suite: every file of tests is in one, every path runs what it can break."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import parts

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tracked() -> list[str]:
    """Every path of the repository."""
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, check=True)
    return listing.stdout.decode().splitlines()


def test_every_file_of_tests_is_in_one_part_and_every_pattern_has_one() -> None:
    files = [file for part in parts.test_files().values() for file in part]
    assert sorted(files) == sorted(
        file.relative_to(ROOT).as_posix() for file in ROOT.glob("tests/**/test_*.py")
    )
    rows = parts.table("tests")
    used = {parts.first(file, {pattern: pattern for pattern in rows}) for file in files}
    assert used == set(rows)


def test_every_tracked_path_is_matched_and_every_pattern_matches_one(tracked: list[str]) -> None:
    rows = parts.table("changes")
    found = {path: parts.first(path, {pattern: pattern for pattern in rows}) for path in tracked}
    assert [path for path, pattern in found.items() if pattern is None] == []
    assert set(rows) == set(found.values())
    named = {part for row in rows.values() for part in row}
    assert named == parts.all_parts() - {parts.EVERYDAY}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("docs/index.md", set()),
        ("operator/outrider/operator/plan.py", {"cluster"}),
        ("charts/outrider/values.yaml", {"cluster"}),
        ("worker/outrider/worker/tree/slots.py", {"processes", "torch"}),
        ("worker/outrider/worker/gpu/shard.py", {"torch"}),
        ("kernels/outrider/kernels/gpu/norm.py", {"torch"}),
        ("bench/device.py", {"torch"}),
        ("lab/outrider/distil/shards.py", {"distillation"}),
        ("tests/kube/space.py", {"cluster"}),
    ],
)
def test_a_change_runs_the_everyday_tests_and_what_it_touches(
    path: str, expected: set[str]
) -> None:
    assert parts.touched([path]) == {parts.EVERYDAY, *expected}


def test_a_change_of_several_files_runs_the_parts_of_each() -> None:
    paths = ["README.md", "operator/outrider/operator/plan.py", "cli/outrider/cli/app.py"]
    assert parts.touched(paths) == {"everyday", "cluster", "processes"}


def test_a_path_that_nothing_names_runs_all_parts() -> None:
    assert parts.touched(["README.md", "new/file.rs"]) == parts.all_parts()


def test_a_name_that_is_no_part_is_refused_with_those_that_are() -> None:
    with pytest.raises(SystemExit, match=r"clutser .* all, changed, .*cluster, .*everyday"):
        parts.chosen(["everyday", "clutser"])


def repository(folder: Path, *commits: tuple[str, str]) -> Path:
    """A repository in which each commit, at a time, adds a file."""

    def git(*arguments: str, at: str = "") -> None:
        who = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a"}
        when = {"GIT_COMMITTER_EMAIL": "a@b", "GIT_AUTHOR_DATE": at, "GIT_COMMITTER_DATE": at}
        subprocess.run(
            ["git", *arguments], cwd=folder, env={**os.environ, **who, **when}, check=True
        )

    git("init", "--quiet")
    for file, at in commits:
        (folder / file).touch()
        git("add", file)
        git("commit", "--quiet", "-m", file, at=at)
    return folder


def test_a_change_is_what_differs_from_a_day_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = (
        ("old", "2026-03-01T08:00:00+00:00"),
        ("day", "2026-03-02T12:00:00+02:00"),  # the same moment as 10:00 in UTC
        ("new", "2026-03-03T09:59:00+00:00"),
        ("head", "2026-03-03T10:00:00+00:00"),
    )
    monkeypatch.setattr(parts, "ROOT", repository(tmp_path, *commits))
    (tmp_path / "untracked").touch()
    assert parts.changed_paths() == ["head", "new", "untracked"]


def test_without_a_commit_a_day_old_a_change_is_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "ROOT", repository(tmp_path, ("a", "2026-03-01T08:00:00+00:00")))
    assert parts.changed_paths() is None


def test_where_git_says_nothing_a_change_is_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert parts.changed_paths() is None


def test_one_process_runs_the_tests_of_a_file_or_of_a_group() -> None:
    everyday = parts.test_files()[parts.EVERYDAY]
    assert len({parts.group(file) for file in everyday}) == len(everyday)
    every = [file for part in parts.test_files().values() for file in part]
    used = {parts.first(file, {row: row for row in parts.table("groups")}) for file in every}
    assert used == {*parts.table("groups"), None}


def test_the_tests_of_a_cluster_have_a_pytest_in_a_network_of_its_own() -> None:
    found = parts.commands(["everyday", "processes", "cluster"], "-x")
    assert set(found) == {"cluster", "everyday, processes"}
    assert "tests.kube.pod_network" in found["cluster"]
    files = parts.test_files()
    for name, words in found.items():
        own = [file for part in name.split(", ") for file in files[part]]
        assert words[-len(own) - 1 :] == ["-x", *sorted(own)]
    assert set(parts.commands(["everyday"])) == {"everyday"}


@pytest.mark.parametrize(("first", "second"), [(0, 3), (3, 0), (0, 0)])
def test_a_failure_of_either_pytest_is_one_of_the_run(
    first: int, second: int, capfd: pytest.CaptureFixture[str]
) -> None:
    code = "import sys; print('said by', sys.argv[1]); sys.exit(int(sys.argv[1]))"
    found = {
        name: [sys.executable, "-c", code, str(status)]
        for name, status in (("cluster", first), ("everyday", second))
    }
    assert parts.run(found) == (first or second)
    said = capfd.readouterr().out
    assert said.index(f"said by {second}") < said.rindex(f"said by {first}") or first == second
