"""Which ranks a machine of a replica runs, and where."""

import dataclasses
import re

import pytest

from outrider.contract.settings import (
    ModelSettings,
    PipelineSettings,
    Role,
    SettingsError,
    WorkerSettings,
)
from outrider.worker.parallel.placement import RankPlacement, engines_processors, processors_of

GROUP = {"OUTRIDER_NODES": "2", "OUTRIDER_NODE": "1", "OUTRIDER_LEADER": "localhost"}


def settings(threads: int, *processors: int) -> WorkerSettings:
    model = ModelSettings(uri="file:///m")
    return WorkerSettings(
        role=Role.TARGET, name="m", model=model, threads=threads, processors=processors
    )


def test_a_worker_without_a_group_runs_all_ranks_on_loopback() -> None:
    place = RankPlacement.of({})
    assert place.ranks(3) == range(3)
    assert (place.listen, place.own_address()) == (("127.0.0.1", 0), "127.0.0.1")


def test_machines_run_as_many_ranks_each_in_order() -> None:
    assert RankPlacement.of(GROUP).ranks(6) == range(3, 6)
    assert RankPlacement.of(GROUP | {"OUTRIDER_NODE": "0"}).ranks(6) == range(3)
    assert RankPlacement.of(GROUP).own_address() == "127.0.0.1"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"OUTRIDER_NODES": "two"}, "OUTRIDER_NODES: 'two' is not allowed; it must be 1 to 64"),
        ({"OUTRIDER_NODE": "2"}, "OUTRIDER_NODE: '2' is not allowed; it must be 0 to 1"),
        ({"OUTRIDER_NODE": "-1"}, "OUTRIDER_NODE: '-1' is not allowed; it must be 0 to 1"),
        ({"OUTRIDER_LEADER": ""}, "OUTRIDER_LEADER: missing; OUTRIDER_NODES is 2"),
    ],
)
def test_an_environment_that_cannot_be_is_refused(change: dict[str, str], words: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(words)):
        RankPlacement.of(GROUP | change)


def test_a_degree_that_machines_do_not_divide_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"OUTRIDER_NODES: 2 is not allowed; it must divide"):
        RankPlacement.of(GROUP).ranks(3)


def test_ranks_have_processors_of_their_own_where_there_is_one_for_each_thread() -> None:
    four = settings(2, 4, 5, 6, 7)
    assert [processors_of(four, place, 2) for place in range(2)] == [(4, 5), (6, 7)]
    assert processors_of(four, 1, 3) == processors_of(four, 0, 1) == (4, 5, 6, 7)


@pytest.mark.parametrize(("stages", "engines"), [(1, (4, 5)), (2, (0, 1))])
def test_an_engine_keeps_to_processors_on_which_no_stage_computes(
    stages: int, engines: tuple[int, ...]
) -> None:
    pipeline = PipelineSettings(stages=stages)
    own = (4, 5, 6, 7)[: 2 * stages]
    whole = dataclasses.replace(settings(2, *own), pipeline=pipeline, other_processors=(0, 1))
    assert engines_processors(whole) == engines
