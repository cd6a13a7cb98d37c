"""The chart as Helm renders it, for people to read: `python -m tests.kube.chart_golden`.

A test compares. Definitions are left out, and so is what of rules and dashboards is a file of the
chart as it is; those have tests of their own.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from tools import kube_assets

from tests.kube.chart import CHART

FILE = Path(__file__).parent / "golden" / "everything.yaml"
VALUES = FILE.with_suffix(".values.yaml")
"""The options by which the chart makes all that it can make."""
NOTE = "run `python -m tests.kube.chart_golden`"
COMMAND = ("template", "outrider", str(CHART), "--namespace=outrider-system")
Object = dict[str, Any]


def rendered() -> str:
    """What Helm makes of the chart."""
    helm = kube_assets.folder("helm") / "helm"
    words = (helm, *COMMAND, "--set=crds.install=false", f"--values={VALUES}")
    text = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout
    objects = [_shortened(one) for one in yaml.safe_load_all(text) if one]
    return f"# {NOTE}\n{yaml.safe_dump_all(objects, sort_keys=False, width=100)}"


def _shortened(made: Object) -> Object:
    if made["kind"] == "ConfigMap":
        return {**made, "data": dict.fromkeys(made["data"], "...")}
    if made["kind"] == "PrometheusRule":
        return {**made, "spec": {"groups": [group["name"] for group in made["spec"]["groups"]]}}
    return made


def main() -> int:
    """Write the file."""
    FILE.write_text(rendered())
    return 0


if __name__ == "__main__":
    sys.exit(main())
