"""Which GPUs the workers of a local run see."""

from pathlib import Path

import pytest

from outrider.cli.machine.gpus import VISIBLE, present, share, visible
from outrider.cli.workers.process import environment
from outrider.operator.plan import Plan, PlanOptions, plan
from outrider.operator.spec import load

TEXT = """
apiVersion: outrider.dev/v1alpha1
kind: SpeculativeService
metadata: {name: tiny}
spec:
  target: {model: {uri: "package://p/target.gguf"}, replicas: 2, parallelism: {tensor: 3}}
  draft: {model: {uri: "file:///draft"}, replicas: 1, engine: {device: %s}}
"""


def planned(device: str = "Auto") -> Plan:
    return plan(load(TEXT % device), PlanOptions())


def test_targets_see_the_first_gpus_and_drafts_the_next() -> None:
    assert share(planned(), 8, {}) == {
        "tiny-target-0": {VISIBLE: "0,1,2"},
        "tiny-target-1": {VISIBLE: "3,4,5"},
        "tiny-draft-0": {VISIBLE: "6"},
    }


@pytest.mark.parametrize(
    ("names", "count"),
    [("", 0), ("-1", 0), ("0", 1), ("0,1", 2), (" 1 , 0", 2), ("1,-1,0", 1), ("GPU-8f,GPU-9a", 2)],
)
def test_gpus_that_the_environment_hides_are_not_counted(names: str, count: int) -> None:
    assert visible(4, {VISIBLE: names}) == count
    assert visible(4, {}) == 4
    assert visible(0, {VISIBLE: names}) == 0


def test_a_draft_on_the_cpu_takes_none() -> None:
    assert share(planned("CPU"), 6, {}).keys() == {"tiny-target-0", "tiny-target-1"}


def test_nothing_is_shared_out_where_there_are_too_few_or_somebody_has_chosen() -> None:
    assert share(planned(), 6, {}) == {}
    assert share(planned(), 8, {VISIBLE: "0,1"}) == {}


def test_gpus_are_counted_without_what_is_none(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    assert present(tmp_path) == 3


def test_a_worker_is_told_what_it_sees() -> None:
    assert environment({VISIBLE: "4"})[VISIBLE] == "4"
