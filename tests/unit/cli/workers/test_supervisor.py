"""How long a crashed worker waits for its next life."""

from outrider.cli.workers.supervisor import Backoff


def test_it_doubles_up_to_its_ceiling() -> None:
    backoff = Backoff()
    delays = [backoff.after(lived=0.0) for _ in range(8)]
    assert delays == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]


def test_a_healthy_life_begins_anew() -> None:
    backoff = Backoff()
    for _ in range(5):
        backoff.after(lived=1.0)
    assert [backoff.after(lived=30.0), backoff.after(lived=29.9)] == [0.2, 0.4]
