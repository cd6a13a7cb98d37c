"""A pod's trouble: how its containers ended, in the same words until one ends again."""

import datetime
from typing import Any

import pytest

from outrider.operator.observed.pods import STEADY_SECONDS, pod

NOW = 1_700_000_000.0
META = {"uid": "u", "name": "chat-target-0", "labels": {"outrider.dev/role": "target"}}


def moment(seconds_ago: float) -> str:
    at = datetime.datetime.fromtimestamp(NOW - seconds_ago, datetime.UTC)
    return at.isoformat().replace("+00:00", "Z")


def ended(**more: Any) -> dict[str, Any]:
    return {"terminated": {"exitCode": 137, "reason": "OOMKilled", **more}}


def trouble(state: dict[str, Any], last: dict[str, Any] | None = None, restarts: int = 0) -> str:
    container = {"name": "main", "state": state, "lastState": last or {}, "restartCount": restarts}
    return pod({"metadata": META, "status": {"containerStatuses": [container]}}, NOW).trouble


def running(seconds: float) -> dict[str, Any]:
    return {"running": {"startedAt": moment(seconds)}}


BACK_OFF = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 20s restarting"}}


def test_a_container_that_ends_again_and_again_is_in_the_same_trouble_in_every_phase() -> None:
    words = {
        trouble(ended(), ended(), restarts=2),
        trouble(BACK_OFF, ended(), restarts=2),
        trouble(running(1), ended(), restarts=3),
        trouble(running(STEADY_SECONDS - 1), ended(), restarts=3),
    }
    assert words == {
        "CrashLoopBackOff: main has ended 3 times, last with exit code 137 (OOMKilled)"
    }


def test_a_container_that_has_run_for_long_is_well_again() -> None:
    assert trouble(running(STEADY_SECONDS), ended(), restarts=3) == ""
    assert trouble(running(1)) == ""


@pytest.mark.parametrize(
    ("last", "words"),
    [
        (ended(), "main ended with exit code 137 (OOMKilled)"),
        (ended(reason="Error", exitCode=1), "main ended with exit code 1"),
        (ended(reason="Error", exitCode=139, signal=11), "main ended with signal 11"),
        (
            ended(reason="Error", exitCode=2, message="Traceback\n\nValueError: no room\n"),
            "main ended with exit code 2; it ended with: ValueError: no room",
        ),
        (
            ended(reason="Error", exitCode=1, message='{"error": "no such model"}'),
            "main ended with exit code 1; it ended with: no such model",
        ),
    ],
)
def test_how_it_ended_is_quoted(last: dict[str, Any], words: str) -> None:
    assert trouble(running(10), last, restarts=1) == words


def test_a_container_that_is_done_or_has_not_begun_is_in_no_trouble() -> None:
    assert trouble({"terminated": {"exitCode": 0, "reason": "Completed"}}) == ""
    assert trouble({"waiting": {"reason": "ContainerCreating"}}) == ""


def test_an_image_that_cannot_be_had_is_quoted() -> None:
    waiting = {"waiting": {"reason": "ErrImagePull", "message": "not found"}}
    assert trouble(waiting) == "ErrImagePull: not found"


def test_a_pod_says_as_whom_its_worker_is_called() -> None:
    assert pod({"metadata": META}).identity == ""
    notes = {"outrider.dev/identity": "target.chat.d.outrider"}
    assert pod({"metadata": {**META, "annotations": notes}}).identity == "target.chat.d.outrider"


def test_a_pod_whose_node_is_lost_says_so() -> None:
    status = {"phase": "Unknown", "reason": "NodeLost", "message": "node-1 does not answer"}
    assert pod({"metadata": META, "status": status}, NOW).trouble == (
        "NodeLost: node-1 does not answer"
    )
