"""What many requests share, nobody takes whole: rows of a pass, memory, the draft, the compiler."""

from tests.unit.worker.pair import Pair

LINK = 1


def test_no_pass_has_more_rows_than_it_can_hold() -> None:
    pair = Pair(noise=0.0, running=4, spare_blocks=32, most_rows=24)
    for number in range(1, 4):
        pair.submit([number] * 40, 200, number)
    most = 0
    for turn in range(16):
        if turn >= 8:
            pair.submit([turn] * (9 if turn < 12 else 16), 1, turn)
        pair.turn()
        most = max(most, sum(part.rows.count for part in pair.parts))
    assert most == 24
