"""Comparison of objects with what was applied, and own writes over the caches."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.operator.cluster.differences import AppliedCache, digest, projection
from outrider.operator.cluster.own_writes import LAG_SECONDS, OwnWrites

KEYS = st.sampled_from(["a", "b", "c"])
PLAIN = st.recursive(
    st.integers(0, 3) | st.sampled_from(["x", "0.5"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(KEYS, PLAIN, max_size=3).map(
    lambda body: {**body, "metadata": {"uid": "u"}}
)


@pytest.mark.parametrize(
    ("live", "wanted", "observed"),
    [
        ({"a": 1, "b": 2}, {"a": 0}, {"a": 1}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 0}}, {"a": {"b": 1}}),
        ({}, {"a": 1}, {}),
        ({"a": [{"b": 1, "d": 2}]}, {"a": [{"b": 0}]}, {"a": [{"b": 1}]}),
        ({"a": [1, 2]}, {"a": [1]}, {"a": [1, 2]}),
        ({"a": "text"}, {"a": {"b": 1}}, {"a": "text"}),
    ],
)
def test_a_projection_is_what_is_spoken_of(live: Any, wanted: Any, observed: Any) -> None:
    assert projection(live, wanted) == observed


def with_defaults(value: Any) -> Any:
    """As a server might write it: more keys, and one value its own way."""
    if isinstance(value, dict):
        return {key: with_defaults(below) for key, below in value.items()} | {"default": 1}
    if isinstance(value, list):
        return [with_defaults(below) for below in value]
    return "500m" if value == "0.5" else value


@given(OBJECTS)
def test_what_was_applied_is_the_same_until_it_changes(wanted: dict[str, Any]) -> None:
    applied, live = AppliedCache(), with_defaults(wanted)
    live["metadata"]["uid"] = "u"
    applied.learn(wanted, live)
    assert applied.same(wanted, live)
    drifted = {**copy.deepcopy(live), "a": "drifted"}
    assert applied.same({**wanted, "a": 0}, drifted) is False


@given(OBJECTS, OBJECTS)
def test_another_wish_is_not_the_same(wanted: dict[str, Any], other: dict[str, Any]) -> None:
    applied, live = AppliedCache(), with_defaults(wanted)
    live["metadata"]["uid"] = "u"
    applied.learn(wanted, live)
    assert applied.same(other, live) == (
        projection(live, other) == other or digest(other) == digest(wanted)
    )


def test_an_object_that_is_gone_is_forgotten() -> None:
    wanted = {"cpu": "0.5", "metadata": {"uid": "u"}}
    live = {"cpu": "500m", "metadata": {"uid": "u"}}
    applied = AppliedCache()
    applied.learn(wanted, live)
    assert applied.same(wanted, live)
    applied.forget(live)
    assert not applied.same(wanted, live)


KEY = ("ConfigMap", "chat-intent")


def version(number: int) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": str(number)}}


class Clock:
    """Stands until it is set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_own_writes_are_seen_until_the_watch_tells_of_them() -> None:
    own_writes = OwnWrites(Clock())
    own_writes.learn(KEY, version(1), version(2))
    assert own_writes.overlay({KEY: version(1)}) == {KEY: version(2)}
    own_writes.learn(KEY, version(2), version(3))
    assert own_writes.overlay({KEY: version(1)}) == {KEY: version(3)}
    assert own_writes.overlay({KEY: version(2)}) == {KEY: version(3)}
    assert own_writes.overlay({KEY: version(3)}) == {KEY: version(3)}
    assert own_writes.overlay({KEY: version(9)}) == {KEY: version(9)}, (
        "another write came after ours"
    )


def test_own_creations_and_deletions_are_seen() -> None:
    own_writes = OwnWrites(Clock())
    own_writes.learn(KEY, None, version(1))
    assert own_writes.overlay({}) == {KEY: version(1)}
    own_writes.learn(KEY, version(1), None)
    assert own_writes.overlay({KEY: version(1)}) == {}
    assert own_writes.overlay({}) == {}


def test_a_write_that_no_watch_ever_tells_of_is_not_believed_for_ever() -> None:
    clock = Clock()
    own_writes = OwnWrites(clock)
    own_writes.learn(KEY, None, version(1))
    clock.now = LAG_SECONDS + 1
    assert own_writes.overlay({}) == {}


def test_a_write_that_changes_nothing_is_none() -> None:
    own_writes = OwnWrites(Clock())
    own_writes.learn(KEY, version(1), version(1))
    assert own_writes.overlay({KEY: version(1)}) == {KEY: version(1)}
    assert own_writes.overlay({}) == {}
