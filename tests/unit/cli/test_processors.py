"""Which processors the workers of a local run keep to."""

import dataclasses
import os
import sys

import pytest

from outrider.cli.machine.processors import share
from outrider.contract.processors import usable
from outrider.contract.settings import Role
from outrider.operator.plan import Plan, PlanOptions, plan
from outrider.operator.spec import load

TEXT = """
apiVersion: outrider.dev/v1alpha1
kind: SpeculativeService
metadata: {name: tiny}
spec:
  target: {model: {uri: "package://p/target.gguf"}, engine: {threads: %d}, replicas: %d,
    parallelism: {tensor: %d}}
  draft: {model: {uri: "file:///draft"}, replicas: %d%s}
"""


def planned(
    threads: int = 2, replicas: int = 1, more: str = "", targets: int = 1, ranks: int = 1
) -> Plan:
    return plan(load(TEXT % (threads, targets, ranks, replicas, more)), PlanOptions())


def kept(shared: Plan, role: Role) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Processors of each worker's engine, and of the rest of it."""
    settings = [worker.settings for worker in shared.of(role)]
    return [(s.processors, s.other_processors) for s in settings]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_target_s_engine_has_as_many_processors_as_threads(threads: int) -> None:
    shared = share(planned(threads), range(4))
    own, rest = tuple(range(threads)), tuple(range(threads, 4))
    assert kept(shared, Role.TARGET) == [(own, rest)]


def test_every_rank_of_a_target_has_as_many_processors_as_threads() -> None:
    shared = share(planned(1, ranks=3), range(4))
    assert kept(shared, Role.TARGET) == [((0, 1, 2), (3,))]


def test_each_target_s_engine_has_processors_of_its_own() -> None:
    shared = share(planned(2, targets=2), range(6))
    rest = (4, 5)
    assert kept(shared, Role.TARGET) == [((0, 1), rest), ((2, 3), rest)]
    assert kept(shared, Role.DRAFT) == [(rest, rest)]


def test_every_draft_keeps_to_what_the_target_s_engine_leaves() -> None:
    shared = share(planned(replicas=3), range(5))
    assert kept(shared, Role.DRAFT) == [((2, 3, 4), (2, 3, 4))] * 3


def test_processors_are_told_apart_by_number_whatever_their_order() -> None:
    shared = share(planned(), frozenset({130, 9, 64, 8}))
    assert kept(shared, Role.TARGET) == [((8, 9), (64, 130))]
    assert kept(shared, Role.DRAFT) == [((64, 130), (64, 130))]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_nothing_changes_where_the_target_would_leave_nothing(count: int) -> None:
    before = planned(threads=2)
    assert share(before, range(count)) == before


@pytest.mark.parametrize("more", ["", ", placement: Colocated"])
def test_a_target_without_a_draft_beside_it_keeps_to_nothing(more: str) -> None:
    before = planned(replicas=1 if more else 0, more=more)
    assert share(before, range(8)) == before


def test_only_processors_change() -> None:
    before = planned(replicas=2)
    shared = share(before, range(4))
    assert shared != before
    undone = [
        dataclasses.replace(
            worker,
            settings=dataclasses.replace(worker.settings, processors=(), other_processors=()),
        )
        for worker in shared.workers
    ]
    assert dataclasses.replace(before, workers=tuple(undone)) == before


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps a thread to processors")
def test_usable_processors_are_those_of_this_process() -> None:
    assert usable() == tuple(sorted(os.sched_getaffinity(0)))
