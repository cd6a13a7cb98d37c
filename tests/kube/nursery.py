"""Processes that begin with all that they import: forks of one that has imported it once.

Importing takes longer than all else that the start of a fake worker or of an operator does.
"""

import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from multiprocessing import connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path

OPERATOR = "outrider.operator.__main__"
NURSERY = multiprocessing.get_context("forkserver")
NURSERY.set_forkserver_preload(["tests.kube.fake_worker", OPERATOR])


class ForkedOperator:
    """One life of an operator in such a process, with the part of `Popen` that tests use."""

    def __init__(
        self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path
    ) -> None:
        """`folder`: where it works; `log`: where it writes on."""
        given = (list(arguments), folder, dict(environment), log)
        self._process: ForkServerProcess = NURSERY.Process(target=run, args=given, daemon=True)
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid
        self._reading = threading.Lock()
        """The exit status can be read once."""

    def poll(self) -> int | None:
        """Its exit status, or minus the number of the signal that killed it; None: it runs."""
        with self._reading:
            return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Raises `TimeoutExpired` after so many seconds."""
        connection.wait([self._process.sentinel], timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(OPERATOR, timeout or 0.0)
        return code

    def terminate(self) -> None:
        """SIGTERM."""
        self._process.terminate()

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()


def run(arguments: list[str], folder: Path, environment: dict[str, str], log: Path) -> None:
    """What `python -m outrider.operator` does."""
    from kubernetes.aio.config import kube_config  # here it is imported already, in pytest not

    from outrider.operator import __main__ as operator

    os.setsid()  # Ctrl-C is for pytest
    os.chdir(folder)
    with log.open("ab") as output:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(output.fileno(), stream.fileno())
    os.environ.clear()
    os.environ.update(environment)
    kube_config.KUBE_CONFIG_DEFAULT_LOCATION = environment["KUBECONFIG"]  # read at its import
    sys.argv = [operator.__name__, *arguments]
    sys.exit(operator.main())
