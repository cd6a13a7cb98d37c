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

FOLDER = Path(__file__).parent / "golden"
VALUES = ".values.yaml"
NOTE = "run `python -m tests.kube.chart_golden`"
COMMAND = ("template", "outrider", str(CHART), "--namespace=outrider-system")
Object = dict[str, Any]


def renders() -> dict[str, tuple[str, ...]]:
    """Options of Helm by the name of each file."""
    given = {path.name.removesuffix(VALUES): path for path in sorted(FOLDER.glob(f"*{VALUES}"))}
    return {"default": ()} | {name: (f"--values={path}",) for name, path in given.items()}


def rendered(*options: str) -> str:
    """What Helm makes of the chart."""
    helm = kube_assets.folder("helm") / "helm"
    words = (helm, *COMMAND, "--set=crds.install=false", *options)
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
    """Write the files."""
    for name, options in renders().items():
        (FOLDER / f"{name}.yaml").write_text(rendered(*options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
