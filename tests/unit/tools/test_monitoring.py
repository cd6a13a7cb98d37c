"""Rules and dashboards of the chart are what their code writes, of metrics that there are."""

import re
from pathlib import Path

from tools.monitoring.dashboards import DASHBOARDS
from tools.monitoring.files import FOLDER, files
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


def test_files_are_what_their_code_writes() -> None:
    written = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir()}
    assert written == files(), "run `python -m tools.monitoring`"


def test_every_metric_that_is_asked_for_is_one() -> None:
    asked = [one.expression for one in ALERTS] + [expression for _, expression in records()]
    for board in DASHBOARDS:
        asked += [query.expression for panel in board.panels for query in panel.queries]
        asked += [variable.query for variable in board.variables]
    names = {name for expression in asked for name in NAME.findall(expression)}
    assert names
    assert names <= shown()


def test_every_alert_has_a_heading_that_says_what_to_do() -> None:
    page = (ROOT / RUNBOOKS).read_text(encoding="utf-8")
    headings = re.findall(r"^### (\w+)$", page, re.MULTILINE)
    assert headings == [one.name for one in ALERTS]


def test_labels_in_the_names_of_series_are_those_that_are_kept() -> None:
    for board in DASHBOARDS:
        for panel in board.panels:
            for query in panel.queries:
                for label in re.findall(r"{{(\w+)}}", query.legend):
                    kept = re.findall(r" by \(([^)]*)\)", query.expression)
                    assert kept, panel.title
                    assert all(label in one.split(", ") for one in kept), panel.title
