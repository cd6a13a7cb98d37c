"""Every panel of the dashboards shows something, over what real workers and the operator print."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from prometheus_client import parser
from tools.monitoring.dashboards import DASHBOARDS
from tools.monitoring.panels import Dashboard

from outrider.client import ClientError
from outrider.contract.settings import PipelineSettings, Role
from outrider.operator.server.metrics import OperatorMetrics
from tests.kube import promtool
from tests.kube.chart import Release
from tests.kube.control_plane import ControlPlane
from tests.kube.operator_process import OperatorProcess
from tests.kube.pod_workers import PodWorkers
from tests.kube.space import Space, service
from tests.process import workers as real
from tests.process.workers import Worker
from tests.tiny_models import write_draft_of, write_slow_target

SCRAPED = {"namespace": "models", "service": "chat", "job": "models/chat", "endpoint": "http"}
"""Labels that a PodMonitor adds."""
CUT = (2, 2)
Labels = frozenset[tuple[str, str]]
Series = dict[tuple[str, Labels], int]
"""Growth of each series in a minute, by name and labels."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What was scraped."""

    series: Series

    def add(self, text: str, **scraped: str) -> None:
        """All samples of one scrape; a label that a metric has itself stays as it is."""
        for family in parser.text_string_to_metric_families(text):
            for number, sample in enumerate(family.samples):
                labels = frozenset({**scraped, **sample.labels}.items())
                self.series[sample.name, labels] = number + 1  # so that buckets add up

    @property
    def inputs(self) -> list[dict[str, str]]:
        """As promtool takes them."""
        inputs = []
        for (name, labels), grown in self.series.items():
            chosen = ",".join(f"{key}={json.dumps(value)}" for key, value in sorted(labels))
            inputs.append({"series": f"{name}{{{chosen}}}", "values": f"{grown}+{grown}x30"})
        return inputs


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Worker, Worker]]:
    """A target of two stages, and its draft; real ones."""
    folder = tmp_path_factory.mktemp("shown")
    target = write_slow_target(folder / "target", idle_layers=2)
    draft = write_draft_of(target, folder / "draft", noise=0.01, layers=2)
    pipeline = PipelineSettings(stages=len(CUT), cut=CUT, silence_ms=60_000)
    wanted = (
        real.settings_for(Role.TARGET, target, folder / "cache", pipeline=pipeline),
        real.settings_for(Role.DRAFT, draft, folder / "cache"),
    )
    with contextlib.ExitStack() as stack:
        first, second = (stack.enter_context(real.started(one, folder)) for one in wanted)
        yield first, second


@pytest.fixture(scope="module")
def of_workers(pair: tuple[Worker, Worker]) -> Shown:
    """After an answer with the draft's help, and a request that was refused."""
    target, draft = pair
    real.pair_with(target, draft.address)
    real.until_helped(lambda: real.answer(target, 60).result)
    with pytest.raises(ClientError, match="model"):
        target.client.complete("a", model="unknown")
    shown = Shown({})
    for worker in (*pair, *pair):  # the first scrape is the first answer by HTTP
        text = httpx.get(f"{worker.url}/metrics", trust_env=False).text
        shown.add(text, pod=f"chat-{worker.settings.role}-0", **SCRAPED)
    return shown


def missing(board: Dashboard, shown: Shown, folder: Path) -> str:
    """What promtool says of a dashboard's queries that show nothing; "" where there are none."""
    asked = [
        {
            "expr": f"count({_plain(query.expression)}) > bool 0",
            "eval_time": "20m",
            "exp_samples": [{"labels": "{}", "value": 1}],
        }
        for panel in board.panels
        for query in panel.queries
    ]
    test = {"interval": "1m", "input_series": shown.inputs, "promql_expr_test": asked}
    return promtool.evaluate(folder, {"evaluation_interval": "1m", "tests": [test]})


def _plain(expression: str) -> str:
    """Without what Grafana puts in."""
    found = expression.replace("$__rate_interval", "5m")
    return found.replace("$namespace", ".+").replace("$service", ".+")


SERVICES, OPERATOR = DASHBOARDS


def test_every_panel_of_services_shows_what_real_workers_print(
    of_workers: Shown, tmp_path: Path
) -> None:
    assert missing(SERVICES, of_workers, tmp_path) == ""
    name = "outrider_generation_tokens_total"
    found = [one for one in of_workers.series.items() if one[0][0] != name]
    assert name in missing(SERVICES, Shown(dict(found)), tmp_path)


@pytest.fixture
def of_operator(space: Space, operator: OperatorProcess, workers: PodWorkers) -> Shown:
    """Of a real operator with a service that runs and one that is suspended; counters that have
    counted nothing yet get the labels that their code gives them."""
    space.apply(service("chat"), service("idle", suspend="Suspended"))
    space.until_at_rest("chat")
    space.until_condition("idle", "Ready", "False", "Suspended")
    shown = Shown({})
    text = operator.get("/metrics")
    shown.add(text, namespace="outrider-system", job="outrider-system/outrider-operator", pod="o")
    known = {name for name, _ in shown.series}
    for one in vars(OperatorMetrics()).values():
        for family in getattr(one, "describe", list)():
            name = family.name + "_total" * (family.type == "counter")
            if family.type == "counter" and name not in known:
                assert f"# TYPE {name} counter" in text
                labels = frozenset((label, "a") for label in one._labelnames)
                shown.series[name, labels] = 1
    return shown


def test_every_panel_of_the_operator_shows_what_a_real_one_prints(
    of_operator: Shown, tmp_path: Path
) -> None:
    assert missing(OPERATOR, of_operator, tmp_path) == ""
    problems = {labels for name, labels in of_operator.series if name.endswith("_problems")}
    assert any({("service", "idle"), ("reason", "Suspended")} <= labels for labels in problems)


def test_dashboards_come_as_config_maps_with_the_label_of_the_sidecar(
    control_plane: ControlPlane,
) -> None:
    release = Release(control_plane, "outrider", "outrider-system")
    assert not [one for one in release.rendered() if one["kind"] == "ConfigMap"]
    options = ("--set", "dashboards.enabled=true,dashboards.namespace=grafana")
    maps = [one for one in release.rendered(*options) if one["kind"] == "ConfigMap"]
    found = {file: json.loads(text) for one in maps for file, text in one["data"].items()}
    assert found == {f"{board.uid}.json": board.model() for board in DASHBOARDS}
    for one in maps:
        assert one["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert one["metadata"]["namespace"] == "grafana"
