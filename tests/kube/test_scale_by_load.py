"""The manifests of docs/how-to/scale-by-load.md, against the real controller of autoscalers.

A small server stands for prometheus-adapter and for KEDA's: it reads what the targets show.
"""

import copy
import re
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from outrider.contract import metrics
from outrider.contract.metrics import Metric
from outrider.contract.process import HTTP_PORT
from outrider.contract.settings import Role
from tests.kube import external_metrics, promtool
from tests.kube.operator_process import OperatorProcess
from tests.kube.pod_workers import PodWorkers
from tests.kube.space import Object, Space, service
from tests.kube.test_ownership import until_replicas

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "scale-by-load.md"
BLOCKS = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
WRITTEN: dict[str, Object] = {one.get("kind", "values"): one for one in map(yaml.safe_load, BLOCKS)}
HPA = WRITTEN["HorizontalPodAutoscaler"]
MOST = 4
"""Instead of the 8 of the page: fewer pods."""
SECONDS = 120.0


def keda(scaled: Object) -> Object:
    """The autoscaler that KEDA makes of a ScaledObject: a metric for each trigger, by number."""
    name, spec = scaled["metadata"]["name"], scaled["spec"]
    found = [
        {
            "type": "External",
            "external": {
                "metric": {
                    "name": f"s{number}-prometheus",
                    "selector": {"matchLabels": {"scaledobject.keda.sh/name": name}},
                },
                "target": {"type": kind, _field(kind): one["metadata"]["threshold"]},
            },
        }
        for number, one in enumerate(spec["triggers"])
        for kind in (one["metricType"],)
    ]
    return {
        "apiVersion": HPA["apiVersion"],
        "kind": HPA["kind"],
        "metadata": scaled["metadata"],
        "spec": {
            "scaleTargetRef": spec["scaleTargetRef"],
            "minReplicas": spec["minReplicaCount"],
            "maxReplicas": spec["maxReplicaCount"],
            "metrics": found,
            "behavior": spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"],
        },
    }


def _field(kind: str) -> str:
    return kind[0].lower() + kind[1:]


AUTOSCALERS = {"prometheus-adapter": HPA, "KEDA": keda(WRITTEN["ScaledObject"])}


def quick(autoscaler: Object, namespace: str) -> Object:
    """As it is on the page, but at once, and for fewer pods."""
    made: Object = copy.deepcopy(autoscaler)
    made["metadata"]["namespace"] = namespace
    made["spec"]["maxReplicas"] = MOST
    policies = [{"type": "Pods", "value": MOST, "periodSeconds": 1}]
    for way in made["spec"]["behavior"].values():
        way |= {"stabilizationWindowSeconds": 0, "policies": policies}
    return made


def queries() -> Iterator[str]:
    """All PromQL of the page, as an adapter would send it."""
    for rule in WRITTEN["values"]["rules"]["external"]:
        yield rule["seriesQuery"]
        name = rule["seriesQuery"].partition("{")[0]
        filled = rule["metricsQuery"].replace("<<.Series>>", name)
        yield filled.replace("<<.LabelMatchers>>", 'namespace="models",service="chat"')
    for trigger in WRITTEN["ScaledObject"]["spec"]["triggers"]:
        yield trigger["metadata"]["query"]


def test_the_queries_of_the_page_are_promql_over_series_of_targets(tmp_path: Path) -> None:
    series = [
        {
            "series": f'{name}{{namespace="models",service="chat",role="target",pod="{pod}"}}',
            "values": value,
        }
        for name, values in (
            (metrics.NUM_REQUESTS_WAITING.name, ("3x5", "4x5")),
            (metrics.KV_CACHE_USAGE.name, ("0.5x5", "0.9x5")),
        )
        for pod, value in zip("ab", values, strict=True)
    ]
    asked = [
        {
            "expr": f"scalar({query})",
            "eval_time": "2m",
            "exp_samples": [{"labels": "{}", "value": 0.9 if "max" in query else 7}],
        }
        for query in queries()
        if query.startswith(("sum", "max"))
    ]
    assert len(asked) == 4
    test = {"interval": "1m", "input_series": series, "promql_expr_test": asked}
    assert promtool.evaluate(tmp_path, {"tests": [test]}) == ""


def shown(workers: PodWorkers, metric: Metric) -> list[float]:
    """A metric's value of each target, from its `/metrics`."""
    found = []
    for worker in workers.of(Role.TARGET):
        try:
            with urllib.request.urlopen(
                f"http://{worker.ip}:{HTTP_PORT}/metrics", timeout=5
            ) as answer:
                text = answer.read().decode()
        except OSError:
            continue  # it comes or goes
        families = text_string_to_metric_families(text)
        found += [s.value for family in families for s in family.samples if s.name == metric.name]
    return found


def values(workers: PodWorkers) -> external_metrics.Values:
    """Both metrics by the names of either autoscaler."""

    def over(how: Callable[[list[float]], float], metric: Metric) -> Callable[[], float | None]:
        return lambda: how(found) if (found := shown(workers, metric)) else None

    queue, kv = over(sum, metrics.NUM_REQUESTS_WAITING), over(max, metrics.KV_CACHE_USAGE)
    return {
        "outrider_requests_waiting": queue,
        "outrider_kv_usage": kv,
        "s0-prometheus": queue,
        "s1-prometheus": kv,
    }


def described(**changes: Any) -> Object:
    """The service of the page, without its models."""
    scaling = WRITTEN["SpeculativeService"]["spec"]["target"]["scaling"]
    return service("chat", target={"replicas": None, "scaling": scaling}, **changes)


@pytest.mark.slow
@pytest.mark.parametrize("adapter", AUTOSCALERS)
def test_targets_follow_the_queue_and_the_kv(
    space: Space, operator: OperatorProcess, workers: PodWorkers, adapter: str
) -> None:
    with external_metrics.served(space.control_plane, space.namespace, values(workers)) as asked:
        space.apply(described())
        space.until_at_rest("chat")
        space.apply(quick(AUTOSCALERS[adapter], space.namespace))
        workers.behave(Role.TARGET, waiting=3)  # of each: 2 would be enough for one more
        until_replicas(space, Role.TARGET, MOST)
        workers.wait_for(Role.TARGET, MOST)
        workers.behave(Role.TARGET, waiting=0)
        until_replicas(space, Role.TARGET, 1)
        workers.wait_for(Role.TARGET, 1)
        workers.behave(Role.TARGET, counters={"kv_slots": 100, "kv_slots_used": 95})
        until_replicas(space, Role.TARGET, 2)
        metric = AUTOSCALERS[adapter]["spec"]["metrics"][0]["external"]["metric"]
        ((label, value),) = metric["selector"]["matchLabels"].items()
        wanted = f"{label}={value}"
        assert any(wanted in urllib.parse.unquote(one) for one in asked)
        space.kubectl("delete", "hpa", "chat-target")


def test_metrics_that_are_missing_change_nothing(
    space: Space, operator: OperatorProcess, workers: PodWorkers
) -> None:
    nothing = dict.fromkeys(values(workers), lambda: None)
    with external_metrics.served(space.control_plane, space.namespace, nothing) as asked:
        space.apply(described())
        space.until_at_rest("chat")
        space.kubectl("scale", "specscaler/chat-target", "--replicas=3")
        until_replicas(space, Role.TARGET, 3)
        space.apply(quick(HPA, space.namespace))

        def inactive() -> bool:
            found = space.kubectl("get", "hpa", "chat-target", "-o", "yaml")
            conditions = yaml.safe_load(found)["status"].get("conditions", ())
            return any(
                one["type"] == "ScalingActive" and one["status"] == "False" for one in conditions
            )

        space.until(inactive, "the autoscaler says that it cannot measure")
        before = len(asked)
        space.until(lambda: len(asked) > before + 6, "it has asked again and again")
        until_replicas(space, Role.TARGET, 3)
        space.kubectl("delete", "hpa", "chat-target")
