"""Workers that are killed while the memory of the draft inside them moves."""

import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from outrider.client import Unavailable
from outrider.contract.settings import WorkerSettings
from tests.process import workers
from tests.process.conftest import Folders
from tests.process.test_lent_memory import PROMPTS, crowded_settings, memory_of, speculate, text
from tests.process.workers import START_SECONDS, Worker, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pages are given back on Linux")
DISK = Path(__file__).parent / "held_disk"


@dataclass(frozen=True, slots=True)
class HeldDisk:
    """What workers see as a disk on which copies end when a test says so."""

    folder: Path

    @contextmanager
    def holding(self, what: str) -> Iterator[None]:
        """Copies that write, or read, do not end until the block is left."""
        hold = self.folder / f"hold-{what}"
        hold.touch()
        try:
            yield
        finally:
            hold.unlink()

    def until_held(self, what: str) -> None:
        """Wait until a copy is held."""
        waits = self.folder / f"{what}-waits"
        wait_until(waits.exists, START_SECONDS, f"a copy that is to {what}")


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HeldDisk:
    """The disk of all workers that the test starts."""
    path = os.pathsep.join([str(DISK), *filter(None, [os.environ.get("PYTHONPATH")])])
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.setenv("HELD_DISK", str(tmp_path))
    return HeldDisk(tmp_path)


@pytest.fixture
def settings(folders: Folders) -> WorkerSettings:
    return crowded_settings(folders)


def ask_until_lost(worker: Worker, prompt: str) -> list[tuple[int, ...]]:
    """Answers, until one does not come to its end because the worker is gone."""
    answers = []
    while True:
        try:
            answers.append(text(worker, prompt))
        except Unavailable:
            return answers


def lend(worker: Worker) -> None:
    """Ask for more KV than there is until the memory is lent, and let all answers end."""
    with ThreadPoolExecutor(len(PROMPTS)) as threads:
        asked = [threads.submit(text, worker, prompt) for prompt in PROMPTS]
        until_memory(worker, "on_host")
        for one in asked:
            one.result()


def until_memory(worker: Worker, state: str) -> None:
    """Wait until the draft's memory is somewhere."""
    worker.until(lambda seen: seen.memory is not None and seen.memory.draft == state)


def answer_more(worker: Worker) -> None:
    """Wait until one more request is answered."""
    answered = worker.client.state().counters.requests_finished
    worker.until(lambda seen: seen.counters.requests_finished > answered)


def kill_engine(worker: Worker) -> None:
    """SIGKILL to the engine alone; its server ends by itself."""
    (engine,) = worker.children()
    os.kill(engine, signal.SIGKILL)
    assert worker.process.wait(START_SECONDS) > 0


def files(settings: WorkerSettings) -> list[Path]:
    """What is in the folder to which weights go."""
    assert settings.cache is not None
    return sorted(Path(settings.cache).rglob("*"))


@pytest.mark.parametrize(("state", "copies"), [("offloading", "write"), ("reloading", "read")])
def test_a_worker_killed_during_a_move_comes_back_clean_and_every_request_has_an_end(
    folders: Folders, settings: WorkerSettings, disk: HeldDisk, state: str, copies: str
) -> None:
    with workers.started(settings, folders.logs) as worker:
        texts = [text(worker, prompt) for prompt in PROMPTS]
        before = files(settings)
        speculate(worker, False)
        if state == "reloading":
            lend(worker)
        with disk.holding(copies), ThreadPoolExecutor(len(PROMPTS)) as threads:
            if state == "reloading":
                disk.until_held(copies)  # calm has lasted, and nothing runs
            asked = [threads.submit(ask_until_lost, worker, prompt) for prompt in PROMPTS]
            disk.until_held(copies)
            until_memory(worker, state)
            answer_more(worker)  # a copy that does not end holds up no answer
            kill_engine(worker)
        for one, expected in zip(asked, texts, strict=True):
            assert set(one.result()) <= {expected}
        assert files(settings) == before
    with workers.started(settings, folders.logs) as again:
        memory = memory_of(again)
        assert (memory.draft, memory.expansions) == ("on_device", 0)
        assert memory.draft_weight_bytes > 0 < memory.draft_kv_bytes
        assert [text(again, prompt) for prompt in PROMPTS] == texts
