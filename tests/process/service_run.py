"""`outrider run` with real workers, as a process that serves until the test is done.

with serving(file, folder, "--api-keys", "keys") as run:
    Client(run.address)
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from outrider.kernels.jit import compiled
from tests.process.workers import ANSWER_SECONDS, START_SECONDS

OUTRIDER = (sys.executable, "-P", "-c", "from outrider.cli.app import main; main()")


@dataclass(frozen=True, slots=True)
class Run:
    """A run that serves."""

    said: str
    """On stdout, up to the moment when it served."""
    environment: dict[str, str]
    folder: Path

    def found(self, pattern: str) -> str:
        """What it printed there."""
        match = re.search(pattern, self.said)
        assert match, self.said
        return match[1]

    @property
    def address(self) -> str:
        """Of gRPC; several with commas between."""
        return self.found(r"gRPC at (\S+)\n")

    def pid(self, worker: str) -> int:
        """The process id of a worker's first life."""
        return int(self.found(rf"{worker} +\S+, process (\d+)"))

    @property
    def notes(self) -> str:
        """On stderr, so far."""
        return notes_of(self.folder).read_text()

    def outrider(
        self, *arguments: str, stdin: str = "", **environment: str
    ) -> "subprocess.CompletedProcess[str]":
        """The command, to its end."""
        return subprocess.run(
            [*OUTRIDER, *arguments],
            env={**self.environment, **environment},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=START_SECONDS + ANSWER_SECONDS,
            check=False,
        )


def notes_of(folder: Path) -> Path:
    """Where a run's stderr goes."""
    return folder / "notes"


@contextlib.contextmanager
def serving(file: Path, folder: Path, *options: str) -> Iterator[Run]:
    """Serves `file` on free ports with `folder` as its home; ended by SIGTERM with the block."""
    with serving_command(folder, "run", "-f", str(file), *options) as run:
        yield run


@contextlib.contextmanager
def serving_command(folder: Path, *command: str) -> Iterator[Run]:
    """Runs a command of `outrider` that serves, on free ports, with `folder` as its home; ended by
    SIGTERM with the block."""
    environment = {
        **os.environ,
        "HOME": str(folder),
        "NUMBA_CACHE_DIR": str(compiled.folder().parent),
        "OMP_NUM_THREADS": "1",
    }
    with notes_of(folder).open("wb") as notes:
        process = subprocess.Popen(
            [*OUTRIDER, *command, "--port", "0", "--grpc-port", "0"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=notes,
            text=True,
        )
    try:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if "Ctrl-C" in line:
                break
        else:
            raise AssertionError(notes_of(folder).read_text())
        yield Run(said, environment, folder)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=START_SECONDS)
    assert process.returncode == 128 + signal.SIGTERM
