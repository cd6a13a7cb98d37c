"""`outrider top` of real workers, as a process of its own."""

import json
import subprocess
import sys
from typing import Any

from tests.ports import free_port
from tests.process.conftest import MortalDraft
from tests.process.workers import Worker, answer, pair_with

TOP = [sys.executable, "-P", "-c", "from outrider.cli.app import main; main()", "top"]
SECONDS = 60


def top(*options: str) -> "subprocess.CompletedProcess[str]":
    """One frame, or the refusal to show one."""
    command = [*TOP, "--once", "--interval", "0.1", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)


def seen(*options: str) -> dict[str, Any]:
    """One frame as an object."""
    done = top("--json", *options)
    assert done.returncode == 0, done.stderr
    shown: dict[str, Any] = json.loads(done.stdout)
    return shown


def test_top_shows_a_target_and_the_draft_that_it_found(
    target: Worker, two_drafts: tuple[MortalDraft, MortalDraft]
) -> None:
    draft = two_drafts[0]
    pair_with(target, draft.address)
    made = answer(target, 200)
    shown = seen("--address", target.address)
    by_address = {worker["address"]: worker for worker in shown["workers"]}
    assert [by_address[a]["role"] for a in (target.address, draft.address)] == ["target", "draft"]
    counters = by_address[target.address]["state"]["counters"]
    assert counters["generation_tokens"] >= 200
    assert counters["accepted_rows"] >= made.result.usage.accepted_rows
    done = top("--address", target.address)
    assert done.returncode == 0, done.stderr
    assert f"{target.address} target ready" in " ".join(done.stdout.split())


def test_a_worker_that_is_gone_is_shown_as_down(
    target: Worker, two_drafts: tuple[MortalDraft, MortalDraft]
) -> None:
    gone = f"127.0.0.1:{free_port()}"
    pair_with(target, two_drafts[0].address)
    shown = seen("--address", f"{gone},{target.address}")
    assert [worker["up"] for worker in shown["workers"]] == [False, True, True]
    assert shown["workers"][0]["error"]


def test_top_says_that_nothing_answers() -> None:
    done = top("--address", f"127.0.0.1:{free_port()}")
    assert done.returncode == 1
    assert "nothing answers" in done.stderr
