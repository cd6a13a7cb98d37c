"""Growth that follows on becomes one message."""

import dataclasses

import numpy as np
import pytest

from outrider.worker.link.wire import Capacity, FromDraft, Grow, joined
from outrider.worker.tree.growth import Growth


def plain(message: object) -> list[object]:
    """Fields that can be compared."""
    assert dataclasses.is_dataclass(message)
    values = [getattr(message, f.name) for f in dataclasses.fields(message)]
    if isinstance(message, Grow):
        values = [message.session, *message.growth]
    return [v.tolist() if isinstance(v, np.ndarray) else v for v in values]


def grow(first_id: int, count: int, session: int = 7, root: int = 40) -> Grow:
    ids = np.arange(first_id, first_id + count)
    parents, tokens = (ids - 1).astype(np.int64), (ids * 3).astype(np.int32)
    return Grow(session, Growth(root, first_id, parents, tokens, (-ids / 8).astype(np.float32)))


def test_growth_that_follows_on_travels_as_one() -> None:
    (one,) = joined([grow(1, 4), grow(5, 8), grow(13, 2)])
    assert plain(one) == plain(grow(1, 14))


@pytest.mark.parametrize(
    "other", [grow(6, 2), grow(5, 2, session=8), grow(5, 2, root=41), Capacity(1, 1)]
)
def test_other_messages_keep_their_own(other: FromDraft) -> None:
    messages = [grow(1, 4), other, grow(7, 1)]
    assert [plain(m) for m in joined(messages)] == [plain(m) for m in messages]
