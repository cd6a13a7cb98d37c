"""JSON on stdout, as every command with `--json` prints it."""

import json
from typing import Any


def print_json(value: dict[str, Any]) -> None:
    """Print one object on a line of stdout."""
    print(json.dumps(value, ensure_ascii=False, allow_nan=False), flush=True)
