"""Runs one client of a package registry, and keeps what it said for an error.

Leaves what to run to its callers. Addresses are cut from what is shown: which registry a machine
uses is nobody's business but its own.
"""

import re
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tools.kube_assets.pins import AssetsError

ADDRESSES = re.compile(r"\w+://\S+|(?<=lookup )\S+|(?<=dial tcp )\S+")
KEPT_LINES = 40
POLL_SECONDS = 0.5


def without_addresses(text: str) -> str:
    """The text with every address replaced."""
    return ADDRESSES.sub("<address>", text)


def run(
    what: str,
    command: Sequence[str | Path],
    environment: Mapping[str, str],
    folder: Path,
    on_line: Callable[[str], bool] = lambda line: False,
    on_wait: Callable[[], None] = lambda: None,
) -> None:
    """Run to the end; an exit code other than 0 is an `AssetsError` with its last lines,
    which calls it `what`.

    `on_line` sees each line of its stderr, and returns whether it is mere progress. `on_wait` is
    called twice a second.
    """
    kept: deque[str] = deque(maxlen=KEPT_LINES)
    with subprocess.Popen(
        [str(part) for part in command],
        env=dict(environment),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as process:
        reader = threading.Thread(target=_read, args=(process, on_line, kept))
        reader.start()
        try:
            _wait(process, on_wait)
        except BaseException:
            process.terminate()
            raise
        finally:
            reader.join()
    if process.returncode:
        said = without_addresses("\n".join(kept)) or "it said nothing"
        raise AssetsError(f"{what} ended with {process.returncode}:\n{said}")


def _read(
    process: "subprocess.Popen[str]", on_line: Callable[[str], bool], kept: "deque[str]"
) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if not on_line(line.rstrip()):
            kept.append(line.rstrip())


def _wait(process: "subprocess.Popen[str]", on_wait: Callable[[], None]) -> None:
    while True:
        try:
            process.wait(POLL_SECONDS)
            return
        except subprocess.TimeoutExpired:
            on_wait()
