import numpy as np

from outrider.worker.gpu.token_masks import FEW, NO_MASK, TokenMasks
from outrider.worker.gpu.transfers import copies_for


def lines(masks: TokenMasks, *which: int) -> list[list[bool]]:
    """Read lines of the masks, once the device has written them."""
    masks.copies.synchronize()
    return [masks.allowed[line].tolist() for line in which]


def test_equal_masks_share_a_line_and_more_lines_are_made(device: str) -> None:
    masks = TokenMasks(np.array([3, 1, 6], np.int32), copies_for(4, device))
    assert masks.line(np.ones(7, np.bool_)) == NO_MASK
    only_column = [np.arange(7) == token for token in (3, 1)]
    assert [masks.line(mask) for mask in only_column] == [0, 1]
    assert masks.line(only_column[0].copy()) == 0, "another link of the same tokenizers"
    shorter = np.array([False, True, False, True])
    assert masks.line(shorter) == 2, "what the target does not know is left out"
    assert lines(masks, 0, 1, 2) == [
        [True, False, False],
        [False, True, False],
        [True, True, False],
    ]
    more = [np.isin(np.arange(7), ids) for ids in ((6,), (3, 6), (1, 6))]
    assert [masks.line(mask) for mask in more] == [3, 4, 5]
    assert len(masks.allowed) == 2 * FEW
    assert lines(masks, 5, 1) == [[False, True, True], [False, True, False]]
