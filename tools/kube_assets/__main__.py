"""`python -m tools.kube_assets [--sets core control] [--out DIR]`: prints the folder.

    export KUBEBUILDER_ASSETS=$(python -m tools.kube_assets --sets core control helm lws)
    assets=$(python -m tools.kube_assets --sets core control helm lws --kubernetes 1.30) &&
        KUBEBUILDER_ASSETS=$assets pytest tests/kube

Progress goes to stderr.
"""

import argparse
import sys
from pathlib import Path

from tools.kube_assets import SETS, AssetsError, folder, older
from tools.kube_assets.pins import OLDER


def main() -> int:
    """Exit code 1 and one message where something cannot be had."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.kube_assets",
        description="Finds or makes Kubernetes' own servers for tests; prints their folder.",
        epilog="; ".join(f"{name}: {', '.join(files)}" for name, files in SETS.items()),
    )
    parser.add_argument("--sets", nargs="+", choices=SETS, default=["core"], metavar="SET")
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--out", type=Path, help="fill this folder instead of the cache")
    words = "an older minor version of API server, controller manager and scheduler"
    place.add_argument("--kubernetes", choices=OLDER, help=words)
    arguments = parser.parse_args()
    out = arguments.out.absolute() if arguments.out else None
    try:
        if arguments.kubernetes:
            print(older.folder(arguments.kubernetes, *arguments.sets))
        else:
            print(folder(*arguments.sets, out=out))
    except AssetsError as error:
        print(f"kube_assets: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
