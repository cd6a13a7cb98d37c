"""A target may know ids that its draft does not: the draft reads its own last id instead."""

import numpy as np
import pytest

from outrider.worker.draft.scheduler import DraftScheduler
from outrider.worker.draft.send_buffer import SendBuffer
from outrider.worker.link.wire import Commit, Limits, Open
from outrider.worker.sampling.params import SamplingParams
from tests.unit.worker.fakes import VOCABULARY, TokenPool

LINK, SESSION = 1, 9
LAST = VOCABULARY - 1
UNKNOWN = VOCABULARY + 3


@pytest.mark.parametrize(
    ("sent", "read"),
    [([1, LAST], [1, LAST]), ([1, VOCABULARY], [1, LAST]), ([UNKNOWN, 2], [LAST, 2])],
)
def test_an_unknown_id_is_read_as_the_last_one_and_every_other_as_itself(
    sent: list[int], read: list[int]
) -> None:
    kv_cache = TokenPool(2, 664)
    buffer = SendBuffer(lambda link, messages: None)
    draft = DraftScheduler(kv_cache, 64, 2, VOCABULARY, buffer)  # type: ignore[arg-type]
    draft.sessions.link_up(LINK, np.ones(UNKNOWN + 1, np.bool_))
    limits = Limits(SESSION, depth=8, width=2, nodes_ahead=64, error_scale=1.0)
    tokens = np.array(sent, np.int32)
    draft.apply(LINK, Open(SESSION, tokens, SamplingParams(), limits, len(sent), ""), 0.0)
    draft.apply(LINK, Commit(SESSION, len(sent) - 1, tokens), 0.0)
    session = draft.sessions.live[LINK, SESSION]
    assert session.tokens[: session.length].tolist() == read + read
