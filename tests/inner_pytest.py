"""A second pytest that runs some of a run's tests, and whose reports are those of this run.

Leaves which tests those are to `lanes`, and writing reports to `reporting`.
"""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests import reporting

END_SECONDS = 60
"""After its last test or an interruption; longer than the grace that `pod_network` gives what runs
in it."""
TAIL_CHARACTERS = 6000


class InnerPytest:
    """Started with the tests that are to run there; its output lies in a folder of its own."""

    def __init__(
        self,
        config: pytest.Config,
        items: list[pytest.Item],
        folder: Path,
        launcher: Sequence[str] = (),
    ) -> None:
        """`launcher`: the command that is to start it."""
        self._config = config
        self.log = folder / "pytest.log"
        self._lines: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        self._left = len(items)
        """Tests whose reports nobody has asked for yet."""
        self._expected = {pytest.ExitCode.OK}
        """How it may end."""
        wanted = folder / "tests.txt"
        wanted.write_text("".join(f"{item.nodeid}\n" for item in items))
        reader, writer = os.pipe()
        self._process = self._start(wanted, writer, launcher)
        os.close(writer)
        self._came: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, args=[reader], daemon=True).start()

    def _start(
        self, wanted: Path, writer: int, launcher: Sequence[str]
    ) -> "subprocess.Popen[bytes]":
        pytest_command = ("-m", "pytest", "-p", "tests.reporting", "-p", "no:cacheprovider")
        most = f"--maxfail={self._config.getoption('maxfail') or 0}"
        with self.log.open("wb") as output:
            return subprocess.Popen(
                [*launcher, sys.executable, *pytest_command, most, "-v", f"@{wanted}"],
                cwd=self._config.rootpath,
                env={**os.environ, reporting.VARIABLE: str(writer)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(writer,),
                start_new_session=True,  # Ctrl-C reaches it through `close`, once
            )

    def _read(self, reader: int) -> None:
        """Takes reports as they come, or the tests inside would wait for the pipe to be read."""
        with os.fdopen(reader) as reports:
            for line in reports:
                self._came.put(line)
        self._came.put("")

    def reports(self, item: pytest.Item) -> list[pytest.TestReport]:
        """Of one test, once it is over; if none come, one that says how the inner pytest ended.

        The last test's say so too where it ended otherwise than its tests did: it may fail, or die,
        when all of them are over.
        """
        reports = self._reports(item)
        if any(report.failed for report in reports):
            self._expected = {pytest.ExitCode.TESTS_FAILED}
        self._left -= 1
        if self._left == 0 and self._code() not in self._expected:
            reports.append(failed(item, self._ending()))
        return reports

    def _reports(self, item: pytest.Item) -> list[pytest.TestReport]:
        lines = self._lines.pop(item.nodeid, [])
        while not (lines and "finish" in lines[-1]):
            text = self._came.get()
            if not text:
                self._came.put("")  # for the next test
                return [*self._decoded(lines), failed(item, self._ending())]
            line = json.loads(text)
            nodeid = line.get("finish") or line["report"]["nodeid"]
            (lines if nodeid == item.nodeid else self._lines[nodeid]).append(line)
        return self._decoded(lines[:-1])

    def _decoded(self, lines: list[dict[str, Any]]) -> list[pytest.TestReport]:
        hook = self._config.hook.pytest_report_from_serializable
        reports = [hook(config=self._config, data=line["report"]) for line in lines]
        for report in reports:  # JSON has no tuples
            report.location = tuple(report.location)
            if isinstance(report.longrepr, list):
                report.longrepr = tuple(report.longrepr)
        return reports

    def _ending(self) -> str:
        code = self._code()
        tail = self.log.read_text(errors="replace")[-TAIL_CHARACTERS:]
        ended = "does not end" if code is None else f"ended with {code}"
        return f"the pytest that ran it {ended}; {self.log} ends:\n{tail}"

    def _code(self) -> int | None:
        """How it ended, once it has; None: it goes on."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(END_SECONDS)
        return None

    def close(self) -> None:
        """Interrupts what still runs, and waits until all has ended."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(END_SECONDS)


def failed(item: pytest.Item, why: str) -> pytest.TestReport:
    """A report of a test that could not be run."""
    return pytest.TestReport(
        item.nodeid, item.location, dict.fromkeys(item.keywords, 1), "failed", why, "setup"
    )
