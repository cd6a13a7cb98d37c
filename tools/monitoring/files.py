"""The files of the chart that this package writes, as text."""

import json
from pathlib import Path
from typing import Any

import yaml
from tools.monitoring.dashboards import DASHBOARDS
from tools.monitoring.rules import groups

FOLDER = Path(__file__).parents[2] / "charts" / "outrider" / "files" / "monitoring"
NOTE = "# Written by `python -m tools.monitoring`; change tools/monitoring instead.\n"


def files() -> dict[str, str]:
    """Text of each file by its name."""
    made = {"rules.yaml": NOTE + _yaml({"groups": groups()})}
    return made | {
        f"{one.uid}.json": json.dumps(one.model(), indent=1, ensure_ascii=False) + "\n"
        for one in DASHBOARDS
    }


def _yaml(content: dict[str, Any]) -> str:
    return str(yaml.safe_dump(content, sort_keys=False, width=100, allow_unicode=True))
