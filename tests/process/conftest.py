"""Workers that several tests share: models are written once, processes are started once.

Tests that end a target start their own; drafts may be killed by anyone and come back.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from outrider.contract.settings import Role, WorkerSettings
from tests.process import workers
from tests.process.workers import Worker
from tests.tiny_models import write_draft_of, write_slow_target

CONTEXT = 2048


@dataclass(frozen=True, slots=True)
class Folders:
    """Where models, logs and measured facts of one test run lie."""

    target: Path
    draft: Path
    cache: Path
    logs: Path

    def settings(self, role: Role, port: int | None = None, **changes: object) -> WorkerSettings:
        """Settings of one more worker."""
        model = self.target if role is Role.TARGET else self.draft
        return workers.settings_for(role, model, self.cache, port, **changes)


@dataclass
class MortalDraft:
    """A draft that can be killed, and comes back on the same port."""

    settings: WorkerSettings
    logs: Path
    worker: Worker

    @property
    def address(self) -> str:
        """The same in every life."""
        return self.settings.listen

    def kill(self) -> None:
        """SIGKILL; the next life begins to start at once."""
        self.worker.kill_all()
        self.worker.client.close()
        self.worker = workers.launch(self.settings, self.logs)

    def until_ready(self) -> Worker:
        """The present life, once it takes sessions."""
        self.worker.until(lambda state: state.ready)
        return self.worker


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    base = tmp_path_factory.mktemp("workers")
    (base / "logs").mkdir()
    target = write_slow_target(
        base / "target", kv_heads=1, tie_word_embeddings=False, max_position_embeddings=CONTEXT
    )
    draft = write_draft_of(target, base / "draft", noise=0.01, layers=2)
    return Folders(target, draft, base / "cache", base / "logs")


@pytest.fixture(scope="session")
def example_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the examples' models are prepared, once: a minute on a busy machine."""
    cache = tmp_path_factory.mktemp("example-cache")
    (cache / "models").mkdir()
    return cache


@pytest.fixture(scope="session")
def target(folders: Folders) -> Iterator[Worker]:
    """A target that lets a page of another origin ask, too."""
    settings = folders.settings(Role.TARGET, allowed_hosts=("app://obsidian.md",))
    with workers.started(settings, folders.logs) as worker:
        yield worker


@pytest.fixture(scope="session")
def both_drafts(folders: Folders) -> Iterator[tuple[MortalDraft, MortalDraft]]:
    with contextlib.ExitStack() as stack:
        drafts = [mortal(folders, stack) for _ in range(2)]
        yield drafts[0], drafts[1]


@pytest.fixture
def two_drafts(both_drafts: tuple[MortalDraft, MortalDraft]) -> tuple[MortalDraft, MortalDraft]:
    """Both ready, whatever an earlier test did to them."""
    for draft in both_drafts:
        draft.until_ready()
    return both_drafts


@pytest.fixture
def draft(two_drafts: tuple[MortalDraft, MortalDraft]) -> MortalDraft:
    return two_drafts[0]


@pytest.fixture(scope="session")
def plain(target: Worker) -> tuple[int, ...]:
    """The greedy text of plain decoding; shorter answers are its beginnings."""
    return workers.answer(target, 1800, speculate=False).tokens


def mortal(folders: Folders, stack: contextlib.ExitStack) -> MortalDraft:
    settings = folders.settings(Role.DRAFT)
    draft = MortalDraft(settings, folders.logs, workers.launch(settings, folders.logs))
    stack.callback(lambda: workers.stop(draft.worker))
    return draft
