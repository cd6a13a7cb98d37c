"""An engine that is not told yet how to run: it measures as asked, and goes on as told."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from outrider.contract.settings import Dtype, ModelSettings, Role, WorkerSettings
from outrider.worker.engine.socket_channel import ChannelClosed
from outrider.worker.engine.transport import Closed, ThreadTransport
from outrider.worker.launch.arrangement import Candidates, first_guesses, medians, settle
from outrider.worker.launch.prepare import Models, prepare_models
from outrider.worker.messages import Alive, Arrange, AskAlive, AskTimeline, Measure, Measured
from tests.tiny_models import reverse_bytes, write_tiny

PROMPTS = (tuple(b"Once upon a time"), tuple(b"Why?"))
PASSES = ((Role.DRAFT, 2), (Role.TARGET, 1), (Role.TARGET, 4))


def waiting(folder: Path, *, draft_seed: int = 0) -> tuple[WorkerSettings, Models]:
    """A target that awaits an arrangement, with a draft inside."""
    target = write_tiny(folder / "target")
    draft = write_tiny(folder / "draft", seed=draft_seed)
    settings = WorkerSettings(
        role=Role.TARGET,
        name="tiny",
        model=ModelSettings(uri=f"file://{target}", dtype=Dtype.FP32),
        colocated=ModelSettings(uri=f"file://{draft}", dtype=Dtype.FP32),
        cache=str(folder / "cache"),
        await_arrangement=True,
    )
    return settings, prepare_models(settings)


def settled(
    settings: WorkerSettings, models: Models, *messages: Any
) -> tuple[WorkerSettings, list[Any]]:
    """What an engine goes on with after these messages, and what it has sent."""
    sent: list[Any] = []

    def deliver(given: Sequence[Any]) -> None:
        sent.extend(given)

    transport = ThreadTransport(deliver)
    for message in messages:
        transport.inbox.put(message)
    return settle(settings, models, transport), sent


def test_it_measures_as_asked_and_goes_on_as_told(tmp_path: Path) -> None:
    settings, models = waiting(tmp_path)
    arranged = replace(settings, threads=2, colocated=None, await_arrangement=False)
    timed = Measure(threads=2, passes=PASSES)
    compared = Measure(threads=1, prompts=PROMPTS, tokens=20, seconds=60.0)
    messages = (AskAlive(), timed, compared, AskTimeline(), Arrange(arranged))
    told, (alive, times, answers, _) = settled(settings, models, *messages)
    assert told == arranged
    assert alive == Alive()
    assert len(times.seconds) == len(PASSES)
    assert all(seconds > 0 for seconds in times.seconds)
    assert answers.hits == answers.guesses, "the draft is the target"
    assert 0 < answers.guesses <= 2 * 20


def test_a_draft_of_another_tokenizer_guesses_in_the_target_s_ids(tmp_path: Path) -> None:
    settings, _ = waiting(tmp_path)
    reverse_bytes(tmp_path / "draft")
    compared = Measure(threads=1, prompts=PROMPTS, tokens=20, seconds=60.0)
    _, (found,) = settled(settings, prepare_models(settings), compared, Arrange(settings))
    assert found.hits == found.guesses > 0, "but for its ids the draft is the target"


def test_another_draft_guesses_some_tokens_wrong(tmp_path: Path) -> None:
    settings, models = waiting(tmp_path, draft_seed=1)
    compared = Measure(threads=1, prompts=PROMPTS, tokens=20, seconds=60.0)
    _, (found,) = settled(settings, models, compared, Arrange(settings))
    assert found.hits < found.guesses


def test_answers_are_those_of_plain_decoding_one_by_one(tmp_path: Path) -> None:
    settings, models = waiting(tmp_path)
    own = Candidates(settings, models).own
    for prompt, answer in own.answered(PROMPTS, models.vocabulary, 12, 60.0):
        text = np.concatenate([prompt, answer])
        following = own._logits(text, own.block_tables[0])[:, : models.vocabulary].argmax(axis=1)
        assert list(following[len(prompt) - 1 : -1]) == list(answer)


def test_a_draft_that_cannot_be_used_is_said_and_left_out(tmp_path: Path) -> None:
    settings, models = waiting(tmp_path)
    assert models.colocated is not None
    (models.colocated.directory / "config.json").write_text("{}")
    timed = Measure(threads=1, passes=((Role.TARGET, 1),), prompts=PROMPTS, tokens=4)
    _, (found,) = settled(settings, models, timed, Arrange(settings))
    assert found.refused
    assert found.seconds
    assert found.guesses == 0


def test_it_ends_with_its_server(tmp_path: Path) -> None:
    with pytest.raises(ChannelClosed):
        settled(*waiting(tmp_path), Closed())


@pytest.mark.parametrize(
    ("right", "counted"),
    [("", (0, 0)), ("0000", (4, 0)), ("1111", (1, 1)), ("1011", (2, 2)), ("1101111", (2, 2))],
)
def test_a_tree_begins_behind_the_token_that_a_pass_adds(
    right: str, counted: tuple[int, int]
) -> None:
    assert first_guesses(np.array([token == "1" for token in right], np.bool_)) == counted


def test_a_round_is_timed_whatever_it_takes_and_the_median_counts() -> None:
    times = iter([9.0, 3.0])
    assert medians([lambda: next(times)], 0.0) == (3.0,)
    taken = Measured(seconds=medians([lambda: 1.0, lambda: 2.0], 0.01))
    assert taken.seconds == (1.0, 2.0)
