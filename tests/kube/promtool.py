"""Prometheus' own tool: checks rules, and evaluates them over series that a test describes.

    problem = promtool.evaluate(folder, {"evaluation_interval": "1m", "tests": [...]})

Leaves finding the program to `tools.kube_assets`.
"""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools import kube_assets
from tools.kube_assets.pins import PROMTOOL
from tools.monitoring.files import FOLDER

RULES = FOLDER / "rules.yaml"
SECONDS = 60


def evaluate(folder: Path, content: Mapping[str, Any]) -> str:
    """Return what `promtool test rules` says of a test file; "" where all of it holds."""
    file = folder / "test.yaml"
    file.write_text(json.dumps(content))  # JSON is YAML
    return _said("test", "rules", str(file))


def check(file: Path) -> str:
    """Return what `promtool check rules` finds wrong; "" where nothing is."""
    return _said("check", "rules", "--lint=all", "--lint-fatal", str(file))


def _said(*words: str) -> str:
    program = kube_assets.folder("rules") / PROMTOOL
    done = subprocess.run([program, *words], capture_output=True, text=True, timeout=SECONDS)
    return f"{done.stdout}{done.stderr}" if done.returncode else ""
