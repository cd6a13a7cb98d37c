"""Objects that the API server fails at: what is said of them, and when they are tried again."""

import math

from outrider.operator.apply.failures import ApplyFailures
from outrider.operator.cluster.client import ClusterError

KEY, OTHER = ("Service", "a"), ("Service", "b")
NONE = frozenset[tuple[str, str]]()


def failure(words: str, status: int = 500, retry_after: float = 0.0) -> ClusterError:
    return ClusterError("apply", status, words, retry_after)


def test_an_object_that_fails_once_is_not_yet_one_that_fails() -> None:
    failures = ApplyFailures()
    failures.learn({KEY: failure("one")}, NONE, 1, 0)
    assert failures.lasting == {}
    failures.learn({KEY: failure("two"), OTHER: failure("none", 0)}, NONE, 1, 10)
    assert failures.lasting == {KEY: "one"}, "words stay while the status does"
    failures.learn({KEY: failure("three", 503)}, NONE, 1, 20)
    assert failures.lasting == {KEY: "three"}
    failures.learn({}, NONE, 1, 30)
    failures.learn({KEY: failure("four", 503)}, NONE, 1, 40)
    assert failures.lasting == {}


def test_an_object_is_tried_again_later_and_later() -> None:
    failures, now = ApplyFailures(), 0.0
    for seconds in (1, 2, 5, 10, 30, 60, 60):
        failures.learn({KEY: failure("no")}, NONE, 1, now)
        assert seconds <= failures.wait(1, now) <= 1.2 * seconds
        assert list(failures.held(1, now + seconds - 0.1)) == [KEY]
        now += 1.3 * seconds
        assert failures.held(1, now) == {}
    failures.learn({}, NONE, 1, now)
    assert failures.wait(1, now) == math.inf


def test_one_that_is_not_tried_has_not_failed_again() -> None:
    failures = ApplyFailures()
    failures.learn({KEY: failure("no")}, NONE, 1, 0)
    due = failures.wait(1, 0)
    failures.learn(failures.held(1, 0.5), frozenset({KEY}), 1, 0.5)
    assert failures.lasting == {}
    assert failures.wait(1, 0.5) == due - 0.5


def test_an_edit_does_not_wait_unless_the_server_asks_for_it() -> None:
    failures = ApplyFailures()
    failures.learn({KEY: failure("no"), OTHER: failure("no", 429, 7.0)}, NONE, 1, 0)
    assert list(failures.held(2, 0.5)) == [OTHER]
    assert failures.wait(2, 0.5) == 0
    assert failures.held(2, 7) == {}
