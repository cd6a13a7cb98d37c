"""Writes what the chart has for Prometheus and Grafana: `python -m tools.monitoring`.

charts/outrider/files/monitoring/ follows from this package; a test compares.
"""

import sys

from tools.monitoring.files import FOLDER, files


def main() -> int:
    """Write the files."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
