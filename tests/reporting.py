"""A pytest plugin: sends each test's reports to the pytest that started this one.

Loaded with `-p tests.reporting` by `inner_pytest`, which reads what is written here: one JSON
object a line, either a report or the end of a test.
"""

import json
import os
import signal
from typing import Any

import pytest

VARIABLE = "OUTRIDER_TEST_REPORTS"
"""Number of the file descriptor that reports go to."""


class Reporter:
    """Writes to the pipe of the pytest outside."""

    def __init__(self, config: pytest.Config, pipe: int) -> None:
        self._config = config
        os.set_inheritable(pipe, False)  # the end of this process is the end of the reports
        self._pipe = os.fdopen(pipe, "w", buffering=1)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One phase of one test."""
        hook = self._config.hook.pytest_report_to_serializable
        self._write(report=hook(config=self._config, report=report))

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """The test is over."""
        self._write(finish=nodeid)

    def _write(self, **line: Any) -> None:
        print(json.dumps(line, default=str), file=self._pipe)


def pytest_configure(config: pytest.Config) -> None:
    """Takes the pipe; it is closed with the process."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job is born deaf to it
    config.pluginmanager.register(Reporter(config, int(os.environ.pop(VARIABLE))))
