"""Services of the examples, and the chart's trial, want no object that somebody else has."""

import itertools
from pathlib import Path

import yaml

from outrider.operator.spec import load
from tests.unit.operator.golden import EXAMPLES, wanted

CHART = Path(__file__).parents[3] / "kube" / "golden" / "everything.yaml"
"""All that the chart can make, with the options that say so."""
CLUSTER = {
    ("ServiceAccount", "default"),
    ("ConfigMap", "kube-root-ca.crt"),
    ("Service", "kubernetes"),
}
"""In each namespace, and the last one in that called default."""
TRIAL = "outrider-operator-trial"
Names = set[tuple[str, str]]


def made(text: str) -> Names:
    """Kind and name of the objects of a service."""
    return {(one["kind"], one["metadata"]["name"]) for one in wanted(load(text), {}).objects}


def of_the_trial() -> str:
    """The service that `helm test` makes."""
    for one in yaml.safe_load_all(CHART.read_text()):
        for container in one.get("spec", {}).get("containers", ()):
            if f"--name={TRIAL}" in container["args"]:
                (spec,) = (
                    a.removeprefix("--spec=") for a in container["args"] if a.startswith("--spec=")
                )
                kind = {"apiVersion": "outrider.dev/v1alpha1", "kind": "SpeculativeService"}
                return yaml.safe_dump(
                    {**kind, "metadata": {"name": TRIAL}, "spec": yaml.safe_load(spec)}
                )
    raise AssertionError(f"no pod of the chart makes {TRIAL}")


def test_no_object_is_wanted_twice() -> None:
    chart = {
        (one["kind"], one["metadata"]["name"]) for one in yaml.safe_load_all(CHART.read_text())
    }
    services = [made(path.read_text(encoding="utf-8")) for path in EXAMPLES]
    services.append(made(of_the_trial()))
    for one, other in itertools.combinations([chart, CLUSTER, *services], 2):
        assert not one & other
