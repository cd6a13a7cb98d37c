"""The other sides of `bench.host_tree` keep its trees full, and stalls are told from work."""

import numpy as np
import pytest

from bench.host_tree.__main__ import CASES, entered, figures
from bench.host_tree.loops import STAGES, DraftLoop
from bench.host_tree.models import PassClock
from bench.host_tree.peer import EVERYTHING, NODES_AHEAD, PROMPT, Committer, Grower
from outrider.worker.link.wire import Commit, FromTarget, Grow
from outrider.worker.tree.mirror import Mirror


def test_growth_keeps_a_mirror_full_in_as_many_messages_as_are_asked_for() -> None:
    for messages in (1, 2):
        grower, committer = Grower(messages), Committer(NODES_AHEAD)
        mirror = Mirror(len(PROMPT) - 1)
        sent: list[FromTarget] = [committer.open()]
        for _ in range(50):
            answers = [answer for message in sent for answer in grower.answer(message)]
            assert len(answers) == messages
            for grow in (part for answer in answers for part in answer):
                assert isinstance(grow, Grow)
                assert mirror.receive(grow.growth, NODES_AHEAD, EVERYTHING) == 0
                committer.hear([grow])
            assert len(mirror) == NODES_AHEAD
            sent = committer.commit()
            (commit,) = sent
            assert isinstance(commit, Commit)
            mirror.commit(commit.tokens)


def test_stalls_are_the_wall_clock_beyond_the_threads_own_time() -> None:
    stages = np.zeros((10, len(STAGES), 2), np.int64)
    stages[:, :, 1] = 2_000
    stages[:, :, 0] = 2_000
    stages[0, 0, 0] = 102_000
    found = figures(stages)
    assert found[STAGES[0]]["work_us"] == found[STAGES[1]]["work_us"] == 2.0
    assert (found[STAGES[0]]["stall_us"], found[STAGES[1]]["stall_us"]) == (10.0, 0.0)
    assert found["total"]["work_us"] == 2.0 * len(STAGES)
    assert found["total but sample"]["work_us"] == 2.0 * (len(STAGES) - 1)


def test_the_functions_that_a_step_calls_are_counted_without_those_of_the_other_side() -> None:
    target, draft = entered(CASES[0]), entered(CASES[-1])
    for found in (target, draft):
        assert found["calls"] >= found["files"] > 1
    assert draft["calls"] < target["calls"]


def test_a_fake_devices_chain_is_what_the_scheduler_asks_for() -> None:
    """Else it would measure launches that no device needs."""
    pytest.importorskip("triton")
    from bench.host_tree import device

    passes = device.draft_passes(lambda: None, PassClock(), chained=4)
    loop = DraftLoop(passes)
    for _ in range(60):
        loop.step()
    assert passes.runner.answered > passes.runner.launched > 0
