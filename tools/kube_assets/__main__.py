"""`python -m tools.kube_assets [--sets core control] [--out DIR]`: prints the folder.

    export KUBEBUILDER_ASSETS=$(python -m tools.kube_assets --sets core control helm)

Progress goes to stderr.
"""

import argparse
import sys
from pathlib import Path

from tools.kube_assets import SETS, AssetsError, folder


def main() -> int:
    """Exit code 1 and one message where something cannot be had."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.kube_assets",
        description="Finds or makes Kubernetes' own servers for tests; prints their folder.",
        epilog="; ".join(f"{name}: {', '.join(files)}" for name, files in SETS.items()),
    )
    parser.add_argument("--sets", nargs="+", choices=SETS, default=["core"], metavar="SET")
    parser.add_argument("--out", type=Path, help="fill this folder instead of the cache")
    arguments = parser.parse_args()
    out = arguments.out.absolute() if arguments.out else None
    try:
        print(folder(*arguments.sets, out=out))
    except AssetsError as error:
        print(f"kube_assets: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
