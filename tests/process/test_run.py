"""The local hand with real processes, sockets and signals, and workers that need no model."""

import asyncio
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outrider.cli.failures import BadInput, WorkerFailed
from outrider.cli.local.workers import LocalWorkers
from outrider.cli.machine.ports import WantedPorts, free_port
from outrider.cli.profile import measure as profile
from outrider.cli.run.run import RunOptions, run
from outrider.cli.terminal.progress import Lines, StageReporter
from outrider.cli.workers.supervisor import StartOptions
from outrider.client import AsyncClient, State
from outrider.contract.process import ENV_PAGE
from outrider.contract.settings import WorkerSettings
from outrider.operator.plan import PlanOptions, plan
from outrider.operator.spec import load
from tests.process.fake_run import WORKER

SECONDS = 60.0
"""Far more than anything here takes; a machine may be busy."""
FAKE_RUN = Path(__file__).with_name("fake_run.py")
SERVICE = """
apiVersion: outrider.dev/v1alpha1
kind: SpeculativeService
metadata: {name: %s}
spec:
  target: {model: {uri: "package://p/target.gguf"}}
  draft: {model: {uri: "package://p/draft.gguf"}, placement: Separate}
"""
AUTO = SERVICE.replace(", placement: Separate", "")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="watches processes by pidfd")


class Notes:
    """A reporter that keeps notes, and lets a test wait for one."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self._news = asyncio.Event()

    def stage(self, name: str, stage: str, done: int = 0, total: int = 0) -> None:
        """Not of interest."""

    def finish(self, name: str) -> None:
        """Not of interest."""

    def clear(self) -> None:
        """Nothing moves."""

    def started(self) -> None:
        """Not of interest."""

    def note(self, text: str) -> None:
        self.notes.append(text)
        self._news.set()

    async def until(self, text: str, times: int = 1) -> None:
        while sum(text in note for note in self.notes) < times:
            self._news.clear()
            await self._news.wait()


class Run:
    """`outrider run` with fake workers, as a process that serves."""

    def __init__(self, folder: Path) -> None:
        self.runs = folder / "runs"
        self.process = start(folder, "fine")
        self.pids: list[int] = []
        assert self.process.stdout is not None
        self.said = ""
        for line in self.process.stdout:
            self.said += line
            if match := re.search(r"process (\d+)", line):
                self.pids.append(int(match[1]))
            if "Ctrl-C" in line:
                break

    def end(self, number: int) -> int:
        """Sends a signal; the exit status."""
        self.process.send_signal(number)
        self.process.communicate(timeout=SECONDS)
        return self.process.returncode


def start(folder: Path, name: str, *prompt: str, service: str = SERVICE) -> "subprocess.Popen[str]":
    file = folder / "service.yaml"
    file.write_text(service % name)
    return subprocess.Popen(
        [sys.executable, str(FAKE_RUN), str(file), str(folder), *prompt],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def outcome(folder: Path, name: str, *prompt: str, service: str = SERVICE) -> tuple[int, str, str]:
    process = start(folder, name, *prompt, service=service)
    out, err = process.communicate(timeout=SECONDS)
    return process.returncode, out, err


def gone(pid: int) -> bool:
    """Whether a process ends soon."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], SECONDS)[0])
    finally:
        os.close(descriptor)


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path)
    assert len(run.pids) == 2
    yield run
    run.process.kill()
    run.process.communicate()


def faked(folder: Path, progress: StageReporter) -> StartOptions:
    """With workers that are fakes, and all that they write in a folder."""
    return StartOptions(PlanOptions(cache=str(folder)), progress, WORKER, folder / "runs")


def hand(folder: Path, name: str, notes: Notes, **options: object) -> LocalWorkers:
    planned = plan(load(SERVICE % name), PlanOptions(cache=str(folder)))
    return LocalWorkers(planned, faked(folder, notes), **options)  # type: ignore[arg-type]


async def policy_with_draft(made: LocalWorkers, above: int) -> State:
    """The target's state once its policy is newer than `above` and names the draft."""
    async with AsyncClient(made.target.address) as client:
        while True:
            state = await client.state()
            if state.policy.version > above and state.policy.drafts:
                return state


def test_a_prompt_is_answered_as_one_json_object(tmp_path: Path) -> None:
    status, out, err = outcome(tmp_path, "fine", "one two", "compare")
    assert status == 0, err
    shown = json.loads(out)
    [one] = shown["answers"]
    assert one["text"] == "one two one two one two one two "
    assert shown["gain"] == pytest.approx(7 / 4)
    assert shown["plain"]["gain"] is None  # no draft token was verified
    assert one["plain"]["seed"] == one["seed"]
    assert shown["same_text"] is True
    assert "loading" in err
    assert not list((tmp_path / "runs").iterdir())


def test_ctrl_c_leaves_no_process_and_no_folder(serving: Run) -> None:
    assert serving.end(signal.SIGINT) == 130
    assert all(gone(pid) for pid in serving.pids)
    assert not list(serving.runs.iterdir())


def test_sigterm_leaves_no_process(serving: Run) -> None:
    assert serving.end(signal.SIGTERM) == 143
    assert all(gone(pid) for pid in serving.pids)


def test_workers_do_not_outlive_a_hand_that_was_killed(serving: Run) -> None:
    assert serving.end(signal.SIGKILL) == -signal.SIGKILL
    assert all(gone(pid) for pid in serving.pids)


@pytest.mark.parametrize("name", ["fine", "stubborn"])
def test_a_crash_of_the_hand_itself_leaves_no_process(tmp_path: Path, name: str) -> None:
    pids: list[int | None] = []

    async def crash() -> None:
        pids.extend(s.pid for s in made.supervisors)
        raise ZeroDivisionError

    async def body() -> None:
        async with made:
            await made.run(crash)

    made = hand(tmp_path, name, Notes(), grace=5.0 if name == "fine" else 0.1)
    with pytest.raises(ZeroDivisionError):
        asyncio.run(body())
    assert len(pids) == 2
    assert all(gone(pid) for pid in pids if pid)


def test_a_crashed_draft_returns_with_back_off_and_the_target_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes, pauses, sleep = Notes(), [], asyncio.sleep

    async def noted(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(seconds)

    monkeypatch.setattr(asyncio, "sleep", noted)

    async def kill_twice() -> None:
        draft = made.supervisors[0]
        for life in (1, 2):
            before = (await policy_with_draft(made, above=0)).policy.version
            assert draft.pid
            os.kill(draft.pid, signal.SIGKILL)
            await notes.until("draft-0 serves again", life)
            state = await policy_with_draft(made, above=before)
            assert state.policy.drafts == (draft.address,)

    async def body() -> None:
        async with asyncio.timeout(SECONDS), made:
            await made.run(kill_twice)

    made = hand(tmp_path, "fine", notes)
    asyncio.run(body())
    crashes = [note for note in notes.notes if "killed" in note]
    assert [note.rpartition(" in ")[2] for note in crashes] == ["0.2 s", "0.4 s"]
    assert {0.2, 0.4} <= set(pauses)


def test_a_crashed_target_returns_at_its_address_and_is_told_its_drafts(tmp_path: Path) -> None:
    notes = Notes()

    async def kill() -> None:
        address = made.target.address
        assert made.target.pid
        os.kill(made.target.pid, signal.SIGKILL)
        await notes.until("target-0 serves again")
        assert made.target.address == address
        await policy_with_draft(made, above=0)

    async def body() -> None:
        async with asyncio.timeout(SECONDS), made:
            await made.run(kill)

    made = hand(tmp_path, "fine", notes)
    asyncio.run(body())


QUICK = """
  speculation:
    control: {intervalSeconds: 1, probeIntervalSeconds: 2}
    draftShrink: {afterSeconds: 1}
"""


def test_a_draft_that_does_not_pay_is_let_go_and_tried_again(tmp_path: Path) -> None:
    notes = Notes()

    async def watch() -> None:
        draft = made.supervisors[0]
        first = draft.pid
        assert first is not None
        await notes.until("drafting off")
        await notes.until("scaled draft 1→0")
        while draft.wanted or not gone(first):
            await asyncio.sleep(0)
        await notes.until("scaled draft 0→1")
        while draft.pid == first or not draft.serving:
            await asyncio.sleep(0.01)
        async with AsyncClient(made.target.address) as client:
            while not (state := await client.state()).policy.drafts:
                await asyncio.sleep(0.01)
        assert state.policy.drafts == (draft.address,)
        assert state.policy.speculate

    async def body() -> None:
        async with made:
            await asyncio.wait_for(made.run(watch), 4 * SECONDS)

    planned = plan(load(SERVICE % "loses" + QUICK), PlanOptions(cache=str(tmp_path)))
    made = LocalWorkers(planned, faked(tmp_path, notes))
    asyncio.run(body())


def test_a_worker_that_is_down_is_not_asked_for_its_path(tmp_path: Path) -> None:
    async def body() -> None:
        async with asyncio.timeout(SECONDS), made:
            os.kill(draft.pid or 0, signal.SIGKILL)
            assert gone(draft.pid or 0)
            await made.tell_paths()

    made = hand(tmp_path, "fine", Notes())
    draft = next(one for one in made.supervisors if one not in made.targets)
    asyncio.run(body())


def test_a_taken_port_is_exchanged_for_another(tmp_path: Path) -> None:
    async def answer() -> str:
        async with AsyncClient(made.target.address) as client:
            return (await client.complete("still here")).text

    async def body() -> str:
        async with asyncio.timeout(SECONDS), made:
            return await made.run(answer)

    with socket.create_server(("127.0.0.1", 0)) as occupied:
        taken = occupied.getsockname()[1]
        ports = iter([taken, taken, free_port(), free_port()])
        made = hand(tmp_path, "fine", Notes(), ports=WantedPorts(choose=lambda: next(ports)))
        assert asyncio.run(body()).startswith("still here")


def test_a_worker_that_finds_its_port_taken_gets_another(tmp_path: Path) -> None:
    status, out, err = outcome(tmp_path, "taken", "hello")
    assert (status, json.loads(out)["tokens"]) == (0, 8), err


def test_a_taken_port_that_was_asked_for_is_refused(tmp_path: Path) -> None:
    async def body() -> None:
        async with made:
            pytest.fail("it started")

    with socket.create_server(("127.0.0.1", 0)) as occupied:
        port = occupied.getsockname()[1]
        made = hand(tmp_path, "fine", Notes(), ports=WantedPorts(grpc=port))
        with pytest.raises(BadInput, match=f"127.0.0.1:{port} is in use"):
            asyncio.run(body())
    assert all(s.pid is None for s in made.supervisors), "refused before anything was loaded"


def test_a_taken_http_port_is_refused_with_the_option_that_moves_it(tmp_path: Path) -> None:
    async def body() -> None:
        async with made:
            pytest.fail("it started")

    with socket.create_server(("127.0.0.1", 0)) as occupied:
        port = occupied.getsockname()[1]
        made = hand(tmp_path, "fine", Notes(), ports=WantedPorts(http=port))
        with pytest.raises(BadInput, match=rf"127.0.0.1:{port} is in use.*another with --port\."):
            asyncio.run(body())


def test_every_worker_is_told_to_serve_http_on_a_port_of_its_own(tmp_path: Path) -> None:
    async def settings() -> dict[str, str]:
        files = (made.folder.path / f"{s.worker.name}.json" for s in made.supervisors)
        read = [WorkerSettings.from_json(file.read_text()) for file in files]
        return {one.role: one.http_listen for one in read}

    async def body() -> dict[str, str]:
        async with asyncio.timeout(SECONDS), made:
            return await made.run(settings)

    made = hand(tmp_path, "fine", Notes(), ports=WantedPorts(http=0))
    told = asyncio.run(body())
    assert told == {s.worker.role: s.http_address for s in made.supervisors}
    ports = {address for s in made.supervisors for address in (s.address, s.http_address)}
    assert len(ports) == 2 * len(made.supervisors) == 4


def test_no_worker_is_told_to_serve_http_where_nobody_asked(tmp_path: Path) -> None:
    made = hand(tmp_path, "fine", Notes())
    assert [s.http_address for s in made.supervisors] == ["", ""]


@pytest.mark.parametrize(("wanted", "found"), [(True, {"1"}), (False, {"0"})])
def test_options_decide_who_has_the_page_whatever_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: bool, found: set[str]
) -> None:
    def page(pid: int | None) -> str:
        variables = Path(f"/proc/{pid}/environ").read_text().split("\0")
        return dict(one.split("=", 1) for one in variables if one)[ENV_PAGE]

    async def body() -> None:
        async with asyncio.timeout(SECONDS), made:
            assert {page(one.pid) for one in made.targets} == found
            drafts = [one for one in made.supervisors if one not in made.targets]
            assert [page(one.pid) for one in drafts] == ["0"]

    monkeypatch.setenv(ENV_PAGE, "1")
    made = hand(tmp_path, "fine", Notes(), ports=WantedPorts(http=0, page=wanted))
    asyncio.run(body())


def test_a_serving_run_says_where(serving: Run) -> None:
    assert re.search(r"OpenAI API at http://127\.0\.0\.1:\d+/v1\n", serving.said)
    assert re.search(r"gRPC at 127\.0\.0\.1:\d+\n", serving.said)


def test_a_model_that_cannot_be_prepared_ends_the_run_in_words(tmp_path: Path) -> None:
    status, out, err = outcome(tmp_path, "refuses", "hello")
    assert (status, out) == (1, "")
    assert "outrider: refuses-target-0: MixtralForCausalLM is not supported\n" in err
    assert "Traceback" not in err


def test_a_draft_that_cannot_be_used_is_said_while_kernels_are_compiled(tmp_path: Path) -> None:
    service = SERVICE.replace("draft.gguf", "foreign.gguf")
    status, out, err = outcome(tmp_path, "foreign", "hello", service=service)
    assert (status, out) == (2, "")
    assert "outrider: the draft cannot be used: no token is in both.\n" in err


def test_models_that_were_prepared_are_not_looked_at_again(tmp_path: Path) -> None:
    for says in (True, False):
        _, _, err = outcome(tmp_path, "fine", "hello")
        assert ("fine-target-0: reading" in err) is says, err


def test_workers_whose_models_are_prepared_start_together(tmp_path: Path) -> None:
    """Each waits for the other's start, which never ends where one comes after the other."""
    outcome(tmp_path, "fine", "hello")
    status, _, err = outcome(tmp_path, "meets", "hello")
    assert status == 0, err


def test_a_start_that_fails_has_the_next_one_prepare_again(tmp_path: Path) -> None:
    for _ in range(2):
        _, _, err = outcome(tmp_path, "falls", "hello")
        assert "falls-target-0: reading" in err


def test_a_worker_that_never_gets_ready_ends_the_run_with_its_last_words(tmp_path: Path) -> None:
    status, _, err = outcome(tmp_path, "falls", "hello")
    assert status == 1
    assert "falls-target-0 stopped with status 1 before it was ready" in err
    assert "the weights are upside down" in err
    assert "Traceback" not in err


def profiled(tmp_path: Path, quick: bool, name: str = "fine") -> dict[str, Any]:
    file = tmp_path / "service.yaml"
    file.write_text(SERVICE % name)
    return asyncio.run(profile.profile(file, faked(tmp_path, Lines()), quick=quick))


def auto(folder: Path, name: str, *prompt: str) -> tuple[dict[str, Any], str]:
    """The answer of a service that leaves its draft's place to the machine, and the notes."""
    status, out, err = outcome(folder, name, *prompt, service=AUTO)
    assert status == 0, err
    return json.loads(out), err


def test_auto_measures_in_the_workers_that_then_serve_and_remembers(tmp_path: Path) -> None:
    first, notes = auto(tmp_path, "fine", "hello")
    assert first["arrangement"].startswith(("Colocated", "Separate"))
    assert f"placement Auto takes {first['arrangement']}: " in notes
    assert "; 72% accepted." in notes
    assert " loaded in " in notes
    assert "placement: timing passes, 1 thread" in notes
    assert notes.count("fine-target-0: loading") == 1, "no worker is started twice"
    assert notes.count("fine-draft-0: loading") == 1
    again, notes = auto(tmp_path, "fine", "hello")
    assert again["arrangement"] == first["arrangement"]
    assert f"placement Auto takes {first['arrangement']}: " in notes
    assert "timing" not in notes
    assert "loaded in" not in notes


def test_facts_that_cannot_be_read_are_measured_again(tmp_path: Path) -> None:
    auto(tmp_path, "fine", "hello")
    [facts] = (tmp_path / "placement").iterdir()
    facts.write_text("{}")
    assert "timing passes" in auto(tmp_path, "fine", "hello")[1]


def test_a_draft_on_another_device_is_measured_there(tmp_path: Path) -> None:
    service = AUTO.replace(
        '"package://p/draft.gguf"}', '"package://p/draft.gguf"}, engine: {device: CPU}'
    )
    status, out, err = outcome(tmp_path, "fine", "hello", service=service)
    assert status == 0, err
    assert json.loads(out)["arrangement"] == "Separate, 1 + 1 threads"


def test_auto_is_compared_with_plain_decoding(tmp_path: Path) -> None:
    answer, _ = auto(tmp_path, "fine", "hello", "compare")
    assert answer["arrangement"].startswith(("Colocated", "Separate"))
    assert answer["gain"] == pytest.approx(7 / 4)
    ran = [line for line in answer["arrangements"] if line["ran"]]
    assert [line["arrangement"] for line in ran] == [answer["arrangement"], "plain, 1 thread"]
    assert ran[0]["over_plain"] == pytest.approx(7 / 4)


def test_auto_takes_no_draft_where_rows_are_dear_and_compares_with_one(tmp_path: Path) -> None:
    answer, _ = auto(tmp_path, "dear", "hello", "compare")
    assert answer["arrangement"] == "plain, 1 thread"
    assert answer["same_text"] is True
    others = {line["arrangement"] for line in answer["arrangements"]}
    assert "Colocated, 1 thread" in others


def test_a_run_without_its_draft_measures_none_and_starts_none(tmp_path: Path) -> None:
    answer, notes = auto(tmp_path, "fine", "hello", "no-draft")
    assert answer["arrangement"].startswith("plain, ")
    assert "fine-target-0: loading" in notes
    assert "fine-draft" not in notes
    assert "placement" not in notes


def test_a_run_without_its_draft_is_compared_with_one_that_has_it(tmp_path: Path) -> None:
    answer, _ = auto(tmp_path, "fine", "hello", "no-draft compare")
    assert answer["arrangement"].startswith("plain, ")
    assert answer["same_text"] is True
    ran = [line["arrangement"] for line in answer["arrangements"] if line["ran"]]
    assert {name.partition(",")[0] for name in ran} > {"plain"}


def test_a_draft_that_cannot_be_used_is_said_and_not_taken(tmp_path: Path) -> None:
    for _ in range(2):  # it is not remembered: the draft may be mended
        answer, notes = auto(tmp_path, "alone", "hello")
        assert "the draft is not used: the draft does not fit" in notes
        assert answer["arrangement"] == "plain, 1 thread"


def test_a_draft_that_ends_while_it_is_measured_has_no_process(tmp_path: Path) -> None:
    answer, notes = auto(tmp_path, "dies", "hello")
    assert "the draft has no process of its own: dies-draft-0 stopped with status 1" in notes
    assert answer["arrangement"] == "Colocated, 1 thread"


def test_a_target_that_ends_while_it_loads_ends_the_run_with_its_last_words(tmp_path: Path) -> None:
    status, _, err = outcome(tmp_path, "falls", "hello", service=AUTO)
    assert status == 1
    assert "falls-target-0 stopped with status 1 before it was ready" in err
    assert "the weights are upside down" in err


def test_ctrl_c_while_workers_wait_leaves_none(tmp_path: Path) -> None:
    process = start(tmp_path, "slow", "hello", service=AUTO)
    assert process.stderr is not None
    for line in process.stderr:
        if "timing" in line:
            break
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_named_placement_is_kept_and_compared_with_plain_decoding(tmp_path: Path) -> None:
    status, out, err = outcome(tmp_path, "fine", "one two", "compare")
    assert status == 0, err
    shown = json.loads(out)
    assert shown["arrangement"] == "Separate, 1 + 1 threads"
    assert "placement Auto" not in err
    by_name = {line["arrangement"]: line for line in shown["arrangements"]}
    assert by_name["Separate, 1 + 1 threads"]["over_plain"] == pytest.approx(7 / 4)
    assert all(line["ran"] for line in by_name.values())


ALONE = AUTO.replace('  draft: {model: {uri: "package://p/draft.gguf"}}\n', "")


def test_without_a_draft_guesses_from_the_text_are_compared_with_plain_decoding(
    tmp_path: Path,
) -> None:
    status, out, err = outcome(tmp_path, "fine", "hello", "compare", service=ALONE)
    assert status == 0, err
    shown = json.loads(out)
    by_name = {line["arrangement"]: line for line in shown["arrangements"]}
    assert list(by_name) == ["guesses from the text, 1 thread", "plain, 1 thread"]
    assert shown["arrangement"] == "guesses from the text, 1 thread"
    assert by_name[shown["arrangement"]]["over_plain"] == pytest.approx(7 / 4)
    assert err.count("fine-target-0: loading") == 1, "one target answers for both sides"


def test_a_comparison_needs_speculation_and_says_so_before_anything_answers(
    tmp_path: Path,
) -> None:
    plain = f"{ALONE}  speculation: {{mode: Disabled}}\n"
    status, out, err = outcome(tmp_path, "fine", "hello", "compare", service=plain)
    assert (status, out) == (2, "")
    assert "--compare needs a draft, or Suffix or Answers" in err
    assert "measuring" not in err
    assert "loading" not in err


def test_a_taken_port_is_refused_before_anything_is_measured() -> None:
    with socket.create_server(("127.0.0.1", 0)) as occupied:
        port = occupied.getsockname()[1]
        service = load(AUTO % "fine")
        options = RunOptions(service=service, grpc_port=port, worker_command=("no such program",))
        with pytest.raises(BadInput, match=f"127.0.0.1:{port} is in use"):
            asyncio.run(run(options))


def test_a_quick_profile_is_what_the_worker_measured(tmp_path: Path) -> None:
    measured = profiled(tmp_path, quick=True)
    assert measured["draft"]["1"]["rows"]["1"] == 0.001
    advice = measured["recommendation"]
    assert advice["arrangement"] in advice["expected"]
    assert advice["measured"] == {}


def test_a_profile_that_ends_badly_after_its_result_has_failed(tmp_path: Path) -> None:
    with pytest.raises(WorkerFailed, match="status 3"):
        profiled(tmp_path, quick=True, name="ends-badly")


def test_a_profile_goes_without_a_draft_that_cannot_be_used(tmp_path: Path) -> None:
    advice = profiled(tmp_path, quick=False, name="alone")["recommendation"]
    assert advice["measured"].keys() == {"plain, 1 thread"}
    assert advice["arrangement"] == "plain, 1 thread"


def test_a_profile_recommends_the_fastest_of_the_arrangements_that_it_ran(tmp_path: Path) -> None:
    advice = profiled(tmp_path, quick=False)["recommendation"]
    rates = {name: one["tokens_per_second"] for name, one in advice["measured"].items()}
    assert {name.partition(",")[0] for name in rates} >= {"plain", "Colocated"}
    assert rates[advice["arrangement"]] == max(rates.values()) > 0
    assert advice["over_plain"] == pytest.approx(7 / 4, abs=0.01)
