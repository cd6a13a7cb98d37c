"""Steps that cannot be planned: one request ends, or the engine does."""

import time
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from outrider.worker.engine.loop import Engine
from outrider.worker.errors import PlanFailed
from outrider.worker.messages import Finish
from outrider.worker.target.scheduler import NOT_PLANNED
from outrider.worker.tree.growth import Ints
from outrider.worker.tree.walk import Paths
from tests.unit.worker.pair import Pair

FIRST, SECOND = [3, 1, 4], [1, 5, 9]
COUNT = 300


class Unplannable:
    """A logits processor that changes nothing and fails to say which nodes are allowed."""

    failure = None

    def commit(self, tokens: Ints) -> None:
        pass

    def shape(self, logits: NDArray[np.float32], paths: Ints) -> NDArray[np.float32]:
        return logits

    def allowed(self, paths: Paths, tokens: Ints) -> NDArray[np.bool_] | None:
        raise ArithmeticError("no such form")


class Silent:
    """A transport that brings nothing and takes everything."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def drain(self) -> list[Any]:
        return []

    def drain_peers(self) -> list[Any]:
        return []

    def wait(self, seconds: float | None) -> None:
        raise AssertionError("there is a request to go on with")

    def send(self, *messages: Any) -> None:
        self.sent += messages


def drafted_for() -> Pair:
    """Two requests whose mirrors hold nodes."""
    pair = Pair()
    pair.submit(FIRST, COUNT, request=1)
    pair.submit(SECOND, COUNT, request=2)
    for _ in range(5):
        pair.turn()
    pair.settle_link()
    while (drafting := pair.draft.next(pair.now)) is not None:
        pair.draft.settle(drafting, pair.draft_runner.run(drafting), pair.now)
    pair.settle_link()
    assert [len(s.mirror) > 0 for s in pair.target.admission.running] == [True, True]
    return pair


def turn(pair: Pair) -> None:
    """One turn of an engine around the pair's target."""
    Engine(pair.target, pair.target_runner, Silent()).step()
    pair.now = time.monotonic()  # the engine's clock, from now on


def test_a_request_that_cannot_be_planned_for_ends_alone() -> None:
    pair = drafted_for()
    pair.target.admission.running[0].logits_processor = Unplannable()  # type: ignore[assignment]
    before = pair.target.admission.running[1].generated
    turn(pair)
    assert [s.submit.request for s in pair.target.admission.running] == [2]
    assert pair.target.admission.running[0].generated > before
    assert pair.run(2).finish is Finish.LENGTH
    sent = pair.text(2)
    assert sent == pair.expected(SECOND, COUNT)[-len(sent) :]


def test_the_end_of_a_request_that_cannot_be_planned_for_is_sent_and_frees_its_kv() -> None:
    pair = drafted_for()
    pair.target.admission.running[1].logits_processor = Unplannable()  # type: ignore[assignment]
    with pytest.raises(PlanFailed) as failure:
        pair.target.next(pair.now, may_wait=False)
    assert isinstance(failure.value.__cause__, ArithmeticError)
    end = pair.finished(2)
    assert end is not None
    assert (end.finish, end.detail) == (Finish.FAILED, NOT_PLANNED)
    pair.run(1)
    assert pair.target_kv_cache.used == 0


def test_a_failure_of_no_single_request_ends_the_engine() -> None:
    pair = drafted_for()
    pair.target.row_selector.pass_costs = None  # type: ignore[assignment]
    with pytest.raises(AttributeError):
        turn(pair)
    assert len(pair.target.admission.running) == 2
