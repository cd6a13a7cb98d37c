"""The recording of an end-to-end run: what ran is in it, and what failed is raised."""

from pathlib import Path

import pytest

from tests.e2e.recording import CommandFailed, Recording

WAITS = "touch up; while :; do sleep 0.05 || true; done"
"""A command of the background that is there until a signal ends it."""


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    """An empty one, whose commands run in a folder of the test's."""
    made = Recording(tmp_path / "recording.md", tmp_path, {"WHO": "a keeper"})
    made.begin("Title", ["about"])
    return made


def test_a_command_stands_there_with_all_that_it_printed(recording: Recording) -> None:
    assert recording.run('echo "$WHO"\necho two >&2') == "a keeper\ntwo\n"
    assert '$ echo "$WHO"\n> echo two >&2\na keeper\ntwo\n' in recording.file.read_text()


def test_the_middle_of_a_long_output_is_not_kept(recording: Recording) -> None:
    assert recording.run("seq 100").splitlines() == [str(n) for n in range(1, 101)]
    kept = recording.file.read_text()
    assert "\n6\n[78 lines left out]\n85\n" in kept
    assert kept.endswith("\n100\n```\n")


@pytest.mark.parametrize("command", ["echo almost; exit 3", "{ echo almost; exit 3; } | cat"])
def test_a_failed_command_is_recorded_and_raised(recording: Recording, command: str) -> None:
    with pytest.raises(CommandFailed, match="ended with 3"):
        recording.run(command)
    assert "\nalmost\n(status 3)\n" in recording.file.read_text()


def test_a_command_of_the_background_is_interrupted_and_then_shown(recording: Recording) -> None:
    background = recording.background(f"trap 'echo stopped; exit 130' INT; {WAITS}")
    recording.run("until [ -e up ]; do sleep 0.05; done")
    background.interrupt()
    assert "\nstopped\n" in recording.file.read_text()


def test_a_command_of_the_background_that_failed_is_no_success(recording: Recording) -> None:
    background = recording.background(f"trap 'exit 1' INT; {WAITS}")
    recording.run("until [ -e up ]; do sleep 0.05; done")
    with pytest.raises(CommandFailed, match="ended with 1"):
        background.interrupt()
