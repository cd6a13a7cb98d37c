"""Rules and dashboards of the chart are what their code writes, of metrics that there are."""

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
from tools.monitoring.dashboards import DASHBOARDS
from tools.monitoring.files import FOLDER, files
from tools.monitoring.panels import COLUMNS, Dashboard
from tools.monitoring.rules import OPERATOR_ALERTS, RUNBOOKS, SERVICE_ALERTS, records

from outrider.contract import metrics
from outrider.contract.metrics import MetricKind
from outrider.operator.server.metrics import OperatorMetrics

ROOT = Path(__file__).parents[3]
NAME = re.compile(r"outrider_[a-z0-9_]+")
ALERTS = (*SERVICE_ALERTS, *OPERATOR_ALERTS)


def shown() -> set[str]:
    """Names of all series that a worker or the operator can show."""
    parts = ("_bucket", "_sum", "_count")
    found = set()
    for one in metrics.ALL:
        histogram = one.kind is MetricKind.HISTOGRAM
        found |= {one.name + part for part in (parts if histogram else ("",))}
    for family in OperatorMetrics().registry.collect():
        ends = {"counter": ("_total",), "histogram": parts}.get(family.type, ("",))
        found |= {family.name + end for end in ends}
    return found


@pytest.mark.parametrize("name", files())
def test_a_file_is_what_its_code_writes(name: str) -> None:
    written = (FOLDER / name).read_text(encoding="utf-8")
    assert written == files()[name], "run `python -m tools.monitoring`"
    assert {path.name for path in FOLDER.iterdir()} == set(files())


def test_every_metric_that_is_asked_for_is_one() -> None:
    asked = [one.expression for one in ALERTS] + [expression for _, expression in records()]
    for board in DASHBOARDS:
        asked += [query.expression for panel in board.panels for query in panel.queries]
        asked += [variable.query for variable in board.variables]
    names = {name for expression in asked for name in NAME.findall(expression)}
    assert len(names) > 50
    assert names <= shown()


def test_every_alert_has_a_heading_that_says_what_to_do() -> None:
    page = (ROOT / RUNBOOKS).read_text(encoding="utf-8")
    headings = re.findall(r"^### (\w+)$", page, re.MULTILINE)
    assert headings == [one.name for one in ALERTS]


@pytest.mark.parametrize("board", DASHBOARDS, ids=lambda one: one.uid)
def test_panels_lie_beside_each_other_and_have_numbers_of_their_own(board: Dashboard) -> None:
    panels = json.loads(files()[f"{board.uid}.json"])["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < COLUMNS
    heads = [panel["gridPos"]["y"] for panel in panels if panel["type"] == "row"]
    assert all(below > above + 1 for above, below in pairwise(heads))


def test_labels_in_the_names_of_series_are_those_that_are_kept() -> None:
    for board in DASHBOARDS:
        for panel in board.panels:
            for query in panel.queries:
                for label in re.findall(r"{{(\w+)}}", query.legend):
                    kept = re.findall(r" by \(([^)]*)\)", query.expression)
                    assert kept, panel.title
                    assert all(label in one.split(", ") for one in kept), panel.title
