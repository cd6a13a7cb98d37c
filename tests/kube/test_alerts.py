"""Recording rules and alerts of the chart, by Prometheus' own tool."""

from pathlib import Path

import pytest
from tools.monitoring.rules import OPERATOR_ALERTS, RUNBOOKS, SERVICE_ALERTS, records

from tests.kube import promtool
from tests.kube.alert_cases import CASES, Series
from tests.kube.chart import Release, only
from tests.kube.control_plane import ControlPlane

ALERTS = {one.name: one for one in (*SERVICE_ALERTS, *OPERATOR_ALERTS)}


def evaluated(folder: Path, *tests: dict[str, object]) -> str:
    """What promtool says of tests over series."""
    content = {
        "rule_files": [str(promtool.RULES)],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", **test} for test in tests],
    }
    return promtool.evaluate(folder, content)


def inputs(series: Series) -> list[dict[str, str]]:
    return [{"series": name, "values": values} for name, values in series.items()]


def over(series: Series, name: str, *looks: tuple[int, list[object]]) -> dict[str, object]:
    """Of one alert: what there is of it, by minute."""
    found = [
        {"eval_time": f"{minute}m", "alertname": name, "exp_alerts": alerts}
        for minute, alerts in looks
    ]
    return {"input_series": inputs(series), "alert_rule_test": found}


def test_prometheus_finds_nothing_to_say_against_the_rules() -> None:
    assert promtool.check(promtool.RULES) == ""


def test_every_alert_waits_comes_and_does_not_come_for_what_is_near_it(tmp_path: Path) -> None:
    tests = []
    for name, alert in ALERTS.items():
        case = CASES[name]
        fires: list[object] = [
            {
                "exp_labels": {**case.labels, "severity": case.severity},
                "exp_annotations": {
                    "summary": case.summary,
                    "runbook_url": f"{RUNBOOKS}#{name.lower()}",
                },
            }
        ]
        early: list[tuple[int, list[object]]] = [(alert.minutes - 1, [])] if alert.minutes else []
        tests.append(over(case.fires, name, *early, (case.minutes, fires)))
        tests.append(over(case.quiet, name, (case.minutes, [])))
    assert evaluated(tmp_path, *tests) == ""


def test_records_are_rates_by_service(tmp_path: Path) -> None:
    labels = 'namespace="m",service="chat",model_name="chat"'
    series = {
        f'outrider_generation_tokens_total{{{labels},pod="{pod}"}}': f"0+{60 * rate}x20"
        for pod, rate in (("a", 30), ("b", 12))
    }
    name = "service:outrider_generation_tokens:rate5m"
    expected = [{"labels": f"{name}{{{labels}}}", "value": 42}]
    asked = {"expr": name, "eval_time": "15m", "exp_samples": expected}
    test = {"input_series": inputs(series), "promql_expr_test": [asked]}
    assert evaluated(tmp_path, test) == ""
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
