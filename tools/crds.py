"""Writes the definitions and the advice policy of the chart: `python -m tools.crds`.

charts/outrider/files/crds/*.yaml follow from `outrider.operator.spec`, files/admission/advice.yaml
from `outrider.operator.admission`; a test compares.
"""

import sys
from pathlib import Path
from typing import Any

import yaml

from outrider.operator.admission.advice_rules import ADVICE
from outrider.operator.crd.definitions import DEFINITIONS

FILES = Path(__file__).parent.parent / "charts" / "outrider" / "files"
FOLDER, ADMISSION = FILES / "crds", FILES / "admission"
NOTE = "# Written by `python -m tools.crds`; change outrider.operator.%s instead.\n"


def files() -> dict[Path, str]:
    """Text of each file."""
    definitions = {
        FOLDER / f"{definition.name}.yaml": _text(definition.manifest(), "spec")
        for definition in DEFINITIONS
    }
    validations = [
        {"expression": rule.expression, "message": f"{rule.place}: {rule.message}"}
        for rule in ADVICE
    ]
    advice = {ADMISSION / "advice.yaml": _text({"validations": validations}, "admission")}
    return definitions | advice


def _text(content: dict[str, Any], source: str) -> str:
    shown = yaml.safe_dump(content, sort_keys=False, width=100, allow_unicode=True)
    return NOTE % source + shown


def main() -> int:
    """Write the files."""
    for path, text in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
