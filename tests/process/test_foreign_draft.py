"""A draft of another tokenizer in a process of its own: the same text, also where it dies."""

import contextlib
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from outrider.client import LinkState, Sampling
from outrider.contract.settings import Dtype, ModelSettings, PolicySettings, Role
from tests.process import workers
from tests.process.conftest import Folders, MortalDraft
from tests.process.workers import Worker, answer, assert_speculated, let_grow, pair_with
from tests.tiny_models import make_unreadable, reverse_bytes

COUNT = 300


@pytest.fixture(scope="module")
def foreign(folders: Folders, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MortalDraft]:
    folder = reverse_bytes(copied(folders.draft, tmp_path_factory.mktemp("foreign")))
    model = ModelSettings(uri=f"file://{folder}")
    settings = replace(folders.settings(Role.DRAFT), model=model)
    with contextlib.ExitStack() as stack:
        draft = MortalDraft(settings, folders.logs, workers.launch(settings, folders.logs))
        stack.callback(lambda: workers.stop(draft.worker))
        yield draft


def copied(model: Path, folder: Path) -> Path:
    return Path(shutil.copytree(model, folder / "model"))


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.8, top_p=0.9, seed=11)])
def test_a_draft_of_another_tokenizer_changes_no_token(
    target: Worker, foreign: MortalDraft, sampling: Sampling
) -> None:
    foreign.until_ready()
    pair_with(target, foreign.address)
    grown = {COUNT // 2: lambda: let_grow(target, foreign.worker)}
    given = answer(target, COUNT, grown, sampling=sampling)
    assert given.tokens == answer(target, COUNT, sampling=sampling, speculate=False).tokens
    assert_speculated(given)


def test_one_that_is_killed_costs_no_token_and_comes_back(
    target: Worker, foreign: MortalDraft, plain: tuple[int, ...]
) -> None:
    foreign.until_ready()
    pair_with(target, foreign.address)
    grown = {20: lambda: let_grow(target, foreign.worker), 60: foreign.kill}
    assert answer(target, COUNT, grown).tokens == plain[:COUNT]
    foreign.until_ready()
    pair_with(target, foreign.address)
    given = answer(target, COUNT, {20: lambda: let_grow(target, foreign.worker)})
    assert given.tokens == plain[:COUNT]
    assert_speculated(given)


def test_one_that_hangs_costs_no_token(
    target: Worker, foreign: MortalDraft, plain: tuple[int, ...]
) -> None:
    foreign.until_ready()
    pair_with(target, foreign.address)
    hang = {60: lambda: foreign.worker.signal_all(signal.SIGSTOP)}
    try:
        given = answer(target, COUNT, {20: lambda: let_grow(target, foreign.worker)} | hang)
    finally:
        foreign.worker.signal_all(signal.SIGCONT)
    assert given.tokens == plain[:COUNT]


def test_a_pod_whose_draft_is_refused_serves_without_it_and_says_why(
    folders: Folders, tmp_path: Path, plain: tuple[int, ...]
) -> None:
    folder = make_unreadable(copied(folders.draft, tmp_path))
    draft = ModelSettings(uri=f"file://{folder}", dtype=Dtype.FP32)
    settings = folders.settings(Role.TARGET, colocated=draft)
    with workers.started(settings, folders.logs) as worker:
        assert answer(worker, COUNT).tokens == plain[:COUNT]
        worker.client.set_policy(PolicySettings(version=9))
        (link,) = worker.client.state().links
    assert (link.address, link.state) == ("colocated", LinkState.REFUSED)
    assert "the draft's tokens cannot be read" in link.detail
