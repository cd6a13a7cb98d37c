"""Writes the custom resource definitions of the chart: `python -m tools.crds`.

charts/outrider/files/crds/*.yaml follow from `outrider.operator.spec`; a test compares.
"""

import sys
from pathlib import Path

import yaml

from outrider.operator.crd.definitions import DEFINITIONS

FOLDER = Path(__file__).parent.parent / "charts" / "outrider" / "files" / "crds"
NOTE = "# Written by `python -m tools.crds`; change outrider.operator.spec instead.\n"


def files() -> dict[str, str]:
    """Text of each file by its name."""
    return {
        f"{definition.name}.yaml": NOTE
        + yaml.safe_dump(definition.manifest(), sort_keys=False, width=100, allow_unicode=True)
        for definition in DEFINITIONS
    }


def main() -> int:
    """Write the files."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
