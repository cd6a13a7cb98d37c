"""The recording of an end-to-end run: what ran is in it, whatever came of it."""

import re
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from outrider.operator.control.settings import ControlSettings
from outrider.operator.plan import control
from outrider.operator.spec import ServiceReader
from tests.e2e import image, work
from tests.e2e.recording import CommandFailed, Recording


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    """An empty one, whose commands run in a folder of the test's."""
    made = Recording(tmp_path / "recording.md", tmp_path, {"WHO": "a keeper"})
    made.begin("Title", ["about"])
    return made


def test_a_command_stands_there_with_what_it_printed(recording: Recording) -> None:
    assert recording.run('echo "$WHO"') == "a keeper\n"
    assert '```console\n$ echo "$WHO"\na keeper\n```\n' in recording.file.read_text()


def test_errors_are_printed_too_and_further_lines_are_marked(recording: Recording) -> None:
    recording.run("echo one\necho two >&2")
    assert "$ echo one\n> echo two >&2\none\ntwo\n" in recording.file.read_text()


def test_paths_of_the_machine_are_written_as_they_are_to_be_shown(recording: Recording) -> None:
    recording.shown_as = {str(recording.folder): "~"}
    assert recording.run("pwd") == f"{recording.folder}\n"
    assert "$ pwd\n~\n```\n" in recording.file.read_text()


def test_a_timed_command_says_how_long_it_took(recording: Recording) -> None:
    recording.timed = True
    recording.run("python3 -c 'sum(range(3_000_000))'")
    last = recording.file.read_text().splitlines()[-1]
    took, computed = re.fullmatch(r"\*(\S+) s; (\S+) s of processor time\.\*", last).groups()
    assert float(took) > 0
    assert float(computed) > 0


def test_a_failed_command_is_recorded_and_raised(recording: Recording) -> None:
    with pytest.raises(CommandFailed, match="ended with 3"):
        recording.run("printf almost; exit 3")
    assert "\nalmost\n(status 3)\n```\n" in recording.file.read_text()


def test_a_failure_inside_a_pipe_counts(recording: Recording) -> None:
    with pytest.raises(CommandFailed):
        recording.run("false | cat")


def test_a_command_of_the_background_is_interrupted_and_then_shown(recording: Recording) -> None:
    command = "trap 'echo stopped; exit 130' INT; touch up; while :; do sleep 0.05 || true; done"
    background = recording.background(command)
    recording.run("until [ -e up ]; do sleep 0.05; done")
    background.interrupt()
    assert "$ fg  # and Ctrl-C\nstopped\n```\n" in recording.file.read_text()


def test_a_command_of_the_background_that_failed_is_no_success(recording: Recording) -> None:
    background = recording.background(
        "trap 'exit 1' INT; touch up; while :; do sleep 0.05 || true; done"
    )
    recording.run("until [ -e up ]; do sleep 0.05; done")
    with pytest.raises(CommandFailed, match="ended with 1"):
        background.interrupt()


def test_an_image_holds_its_program_and_a_user_without_privileges(tmp_path: Path) -> None:
    program, archive = tmp_path / "busybox", tmp_path / "image.tar"
    program.write_bytes(b"a program")
    image.write("localhost/x:1", ["/bin/busybox"], program, archive)
    with tarfile.open(archive) as outer:
        layer = outer.extractfile("layer.tar")
        assert layer is not None
        with tarfile.open(fileobj=layer) as inner:
            held = inner.getmember("bin/busybox")
            users = inner.extractfile("etc/passwd")
            assert users is not None
            assert (held.mode, held.size) == (0o755, 9)
            assert b"65532" in users.read()


def merged(live: Any, patch: Any) -> Any:
    """A JSON merge patch (RFC 7396), applied."""
    if not isinstance(patch, dict):
        return patch
    whole = dict(live) if isinstance(live, dict) else {}
    for key, value in patch.items():
        whole[key] = merged(whole.get(key), value)
    return {key: value for key, value in whole.items() if value is not None}


def test_the_service_of_the_load_s_recording_has_default_thresholds_and_intervals() -> None:
    service = yaml.safe_load((work.ROOT / work.EXAMPLE).read_text())
    for patch in ("service.yaml", "colocated.yaml"):
        service = merged(service, yaml.safe_load((work.MANIFESTS / patch).read_text()))
    found, default = control(ServiceReader().read(service)), ControlSettings()
    assert found.draft.colocated
    assert (found.disable, found.enable, found.control) == (
        default.disable,
        default.enable,
        default.control,
    )
