"""A draft whose KV is full closes the session that needs more, and no other."""

import numpy as np
import pytest

from outrider.worker.draft.scheduler import DraftScheduler
from outrider.worker.draft.send_buffer import SendBuffer
from outrider.worker.engine.runner import DraftRunner
from outrider.worker.kv.block_pool import BLOCK
from outrider.worker.link.wire import Close, CloseReason, FromDraft, Limits, Open
from outrider.worker.sampling.params import SamplingParams
from tests.unit.worker.fakes import VOCABULARY, HashModel, TokenPool

LINK = 1


@pytest.mark.parametrize(("depth", "closed"), [(1, False), (2, True)])
def test_only_a_session_that_needs_a_pass_is_closed(depth: int, closed: bool) -> None:
    kv_cache = TokenPool(1, 4 * BLOCK, blocks=1)
    sent: list[FromDraft] = []
    draft = DraftScheduler(
        kv_cache,  # type: ignore[arg-type]
        2 * BLOCK,
        1,
        VOCABULARY,
        SendBuffer(lambda link, messages: sent.extend(messages), coalesce=False),
    )
    draft.sessions.link_up(LINK, np.ones(VOCABULARY, np.bool_))
    prompt = np.arange(BLOCK - 4, dtype=np.int32)
    limits = Limits(1, depth, width=8, nodes_ahead=100, error_scale=1.0)
    draft.apply(LINK, Open(1, prompt, SamplingParams(), limits, len(prompt)), 0.0)
    step = draft.next(0.0)
    assert step is not None
    draft.settle(step, DraftRunner(HashModel(kv_cache), None, VOCABULARY).run(step), 0.0)
    (session,) = draft.sessions.live.values()
    assert session.room > BLOCK
    assert draft.next(0.0) is None
    assert [m.reason for m in sent if isinstance(m, Close)] == [CloseReason.OVERLOADED] * closed
    assert len(draft.sessions.live) == (not closed)
