"""Runs the tests of this folder in a second pytest, inside a pod network, and reports them.

The other tests of a run keep their network and run beside it: these mostly wait for servers. One
run has one summary. Leaves the namespace to `pod_network`, and writing reports to `reporting`.
"""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from tools import kube_assets

from tests.kube import reporting
from tests.kube.pod_network import GRACE_SECONDS, SETS

TAIL_CHARACTERS = 6000


class InnerPytest:
    """The pytest inside, started with the tests that are to run there."""

    def __init__(self, config: pytest.Config, items: list[pytest.Item], folder: Path) -> None:
        self._config = config
        self._log = folder / "pytest.log"
        self._lines: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        wanted = folder / "tests.txt"
        wanted.write_text("".join(f"{item.nodeid}\n" for item in items))
        reader, writer = os.pipe()
        self._process = self._start(wanted, writer)
        os.close(writer)
        self._came: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, args=[reader], daemon=True).start()

    def _start(self, wanted: Path, writer: int) -> "subprocess.Popen[bytes]":
        pytest_command = ("-m", "pytest", "-p", "tests.kube.reporting", "-p", "no:cacheprovider")
        most = f"--maxfail={self._config.getoption('maxfail') or 0}"
        launcher = (sys.executable, "-m", "tests.kube.pod_network", sys.executable)
        with self._log.open("wb") as output:
            return subprocess.Popen(
                [*launcher, *pytest_command, most, "-v", f"@{wanted}"],
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
        """Of one test, once it is over; if none come, one that says how the inner pytest ended."""
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
        code = self._process.wait()
        tail = self._log.read_text(errors="replace")[-TAIL_CHARACTERS:]
        return f"the pytest inside the pod network ended with {code}; {self._log} ends:\n{tail}"

    def close(self) -> None:
        """Interrupts what still runs, and waits until every server has ended."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(2 * GRACE_SECONDS)


def failed(item: pytest.Item, why: str) -> pytest.TestReport:
    """A report of a test that could not be run."""
    return pytest.TestReport(
        item.nodeid, item.location, dict.fromkeys(item.keywords, 1), "failed", why, "setup"
    )


class Forwarder:
    """Stands between pytest and the tests of this folder."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._inner: InnerPytest | None = None
        self._trouble = ""

    def start(self, items: list[pytest.Item]) -> None:
        """Starts the inner pytest with `items`; why it could not is said by each of them."""
        capture = self._config.pluginmanager.getplugin("capturemanager")
        folders = self._config._tmp_path_factory  # type: ignore[attr-defined]
        try:
            with capture.global_and_fixture_disabled():  # making the servers can take minutes
                os.environ["KUBEBUILDER_ASSETS"] = str(kube_assets.folder(*SETS))
        except kube_assets.AssetsError as error:
            self._trouble = str(error)
            return
        self._inner = InnerPytest(self._config, items, folders.mktemp("kube"))
        self._config.add_cleanup(self._inner.close)

    def run(self, item: pytest.Item) -> None:
        """Runs one test elsewhere, and reports it here."""
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in self._reports(item):
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _reports(self, item: pytest.Item) -> list[pytest.TestReport]:
        return self._inner.reports(item) if self._inner else [failed(item, self._trouble)]
