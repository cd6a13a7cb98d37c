"""Recording rules and alerts of the chart, by Prometheus' own tool."""

from pathlib import Path

import pytest
from tools.monitoring.rules import OPERATOR_ALERTS, RUNBOOKS, SERVICE_ALERTS, records

from tests.kube import promtool
from tests.kube.alert_cases import CASES, Case, Series
from tests.kube.chart import Release, only
from tests.kube.control_plane import ControlPlane

ALERTS = {one.name: one for one in (*SERVICE_ALERTS, *OPERATOR_ALERTS)}


def evaluated(folder: Path, series: Series, test: dict[str, object]) -> str:
    """What promtool says of one test over series."""
    given = [{"series": name, "values": values} for name, values in series.items()]
    own = {"interval": "1m", "input_series": given, **test}
    content = {"rule_files": [str(promtool.RULES)], "evaluation_interval": "1m", "tests": [own]}
    return promtool.evaluate(folder, content)


def looked_at(name: str, case: Case, found: list[object]) -> dict[str, object]:
    look = {"eval_time": f"{case.minutes}m", "alertname": name, "exp_alerts": found}
    return {"alert_rule_test": [look]}


def test_prometheus_finds_nothing_to_say_against_the_rules() -> None:
    assert promtool.check(promtool.RULES) == ""


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_comes_with_words_that_name_the_service(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    found = {
        "exp_labels": {**case.labels, "severity": case.severity},
        "exp_annotations": {"summary": case.summary, "runbook": f"{RUNBOOKS}#{name.lower()}"},
    }
    assert evaluated(tmp_path, case.fires, looked_at(name, case, [found])) == ""


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_does_not_come_for_what_is_near_it(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    assert evaluated(tmp_path, case.quiet, looked_at(name, case, [])) == ""


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_waits_for_as_long_as_it_says(name: str, tmp_path: Path) -> None:
    case, minutes = CASES[name], ALERTS[name].minutes
    early = {"eval_time": f"{minutes - 1}m", "alertname": name, "exp_alerts": []}
    if minutes:
        assert evaluated(tmp_path, case.fires, {"alert_rule_test": [early]}) == ""


def test_records_are_rates_by_service(tmp_path: Path) -> None:
    labels = 'namespace="m",service="chat",model_name="chat"'
    series = {
        f'outrider_generation_tokens_total{{{labels},pod="{pod}"}}': f"0+{60 * rate}x20"
        for pod, rate in (("a", 30), ("b", 12))
    }
    name = "service:outrider_generation_tokens:rate5m"
    expected = [{"labels": f"{name}{{{labels}}}", "value": 42}]
    asked = {"expr": name, "eval_time": "15m", "exp_samples": expected}
    assert evaluated(tmp_path, series, {"promql_expr_test": [asked]}) == ""
    assert len({name for name, _ in records()}) == len(list(records()))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), False),
        (("--set", "metrics.rules=Enabled"), True),
        (("--set", "metrics.rules=Auto"), False),
        (
            (
                "--set",
                "metrics.rules=Auto",
                "--api-versions=monitoring.coreos.com/v1/PrometheusRule",
            ),
            True,
        ),
    ],
)
def test_the_chart_makes_a_prometheus_rule_where_it_is_wished(
    control_plane: ControlPlane, options: tuple[str, ...], expected: bool
) -> None:
    release = Release(control_plane, "outrider", "outrider-system")
    objects = release.rendered(*options, "--set", "metrics.labels.release=kube")
    kinds = [one["kind"] for one in objects]
    assert ("PrometheusRule" in kinds) is expected
    if expected:
        rule = only(objects, "PrometheusRule")
        assert rule["metadata"]["labels"]["release"] == "kube"
        alerts = [
            one["alert"]
            for group in rule["spec"]["groups"]
            for one in group["rules"]
            if "alert" in one
        ]
        assert alerts == list(ALERTS)
