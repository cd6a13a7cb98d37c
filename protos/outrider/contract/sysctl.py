"""Facts of a Mac."""

import os
import subprocess
import sys
from functools import cache


@cache
def sysctl(*names: str) -> dict[str, str]:
    """Return macOS's values of `names`; those that it does not know, and on another system all,
    are left out."""
    if sys.platform != "darwin":
        return {}
    path = f"{os.environ.get('PATH', '')}{os.pathsep}/usr/sbin"  # which cron leaves out
    done = subprocess.run(
        ("sysctl", *names),
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    pairs = (line.partition(": ") for line in done.stdout.splitlines())
    return {name: value for name, _, value in pairs}
