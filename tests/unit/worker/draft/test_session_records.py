"""Figures that a draft hands over for the span of a session, of traced sessions only."""

from collections.abc import Callable

import numpy as np
import pytest

from outrider.worker.draft.scheduler import DraftScheduler
from outrider.worker.draft.send_buffer import SendBuffer
from outrider.worker.engine.runner import DraftRunner
from outrider.worker.link.wire import Close, CloseReason, Commit, Grow, Limits, Open
from outrider.worker.messages import LinkDown, SessionEnded
from outrider.worker.sampling.params import SamplingParams
from tests.unit.worker.fakes import VOCABULARY, HashModel, TokenPool

CONTEXT = 64
PROMPT = np.array([1, 2, 3, 4, 5], np.int32)
LINK, SESSION = 1, 9
OPENED = 100.0
PARENT = "00-a-b-01"


@pytest.fixture
def sent() -> list[object]:
    return []


@pytest.fixture
def draft(sent: list[object]) -> DraftScheduler:
    kv_cache = TokenPool(2, CONTEXT + 600)
    send_buffer = SendBuffer(lambda link, messages: sent.extend(messages))
    scheduler = DraftScheduler(kv_cache, CONTEXT, 2, VOCABULARY, send_buffer)  # type: ignore[arg-type]
    scheduler.sessions.link_up(LINK, np.ones(VOCABULARY, np.bool_))
    return scheduler


def run(draft: DraftScheduler, traceparent: str) -> int:
    """Open a session, run two passes, commit two tokens; return the rows that were run."""
    runner = DraftRunner(HashModel(draft.kv_cache), None, VOCABULARY)  # type: ignore[arg-type]
    limits = Limits(SESSION, depth=8, width=2, nodes_ahead=64, error_scale=1.0)
    opening = Open(SESSION, PROMPT, SamplingParams(), limits, len(PROMPT), traceparent)
    draft.apply(LINK, opening, OPENED)
    rows = 0
    for _ in range(2):
        step = draft.next(OPENED)
        assert step is not None
        rows += step.rows.count
        draft.settle(step, runner.run(step), OPENED)
    tokens = np.array([6, 7], np.int32)
    draft.apply(LINK, Commit(SESSION, len(PROMPT) - 1, tokens), OPENED)
    draft.send_buffer.flush()
    return rows


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (lambda d: d.apply(LINK, Close(SESSION, CloseReason.FINISHED), OPENED), "finished"),
        (lambda d: d.receive(LinkDown(LINK), OPENED), "link ended"),
        (
            lambda d: d.apply(LINK, Commit(SESSION, 6, np.ones(CONTEXT, np.int32)), OPENED),
            "too_long",
        ),
    ],
)
def test_a_traced_session_leaves_its_figures(
    draft: DraftScheduler,
    sent: list[object],
    end: Callable[[DraftScheduler], None],
    reason: str,
) -> None:
    rows = run(draft, PARENT)
    nodes = sum(len(m.growth.tokens) for m in sent if isinstance(m, Grow))
    assert draft.outbox == []
    end(draft)
    assert draft.outbox == [SessionEnded(PARENT, OPENED, 2, rows, nodes, 2, reason)]


def test_a_session_that_is_not_traced_leaves_nothing(draft: DraftScheduler) -> None:
    run(draft, "")
    draft.apply(LINK, Close(SESSION, CloseReason.FINISHED), OPENED)
    assert draft.outbox == []
