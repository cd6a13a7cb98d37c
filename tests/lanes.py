"""Which tests of a run go on in a pytest of their own beside the others: those of `lanes`.

`tests/kube` mostly waits for servers, which `pod_network` makes first where there are none, and
needs a network of its own; `tests/unit` computes on one core; `tests/process` waits for what
several processes do, so that half of its files go on beside the other half. Leaves the processes to
`inner_pytest`, and which half a file is in to `halves`.
"""

import os
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from tools import kube_assets

from tests.halves import second_half
from tests.inner_pytest import InnerPytest
from tests.kube import pod_network

TESTS = Path(__file__).parent
PROCESS = TESTS / "process"
ELSEWHERE = sys.platform != "linux" and "CI" not in os.environ
"""Whether this is a machine that cannot have network namespaces, and need not."""

Files = Collection[Path]


def _all(files: Files) -> Files:
    return files


@dataclass(frozen=True, slots=True)
class Lane:
    """Tests of one folder."""

    name: str
    launcher: Sequence[str]
    """The command that is to start its pytest."""
    wanted: Callable[[Files], bool]
    """Whether it is opened in a run of these files."""
    share: Callable[[Files], Files] = _all
    """Those of the folder's files in a run that are its own."""
    note: Callable[[], str] = str
    """What to know while its first test is waited for."""

    def files(self, run: Files) -> Files:
        """Those whose tests are its own, of a run; none where it is not opened."""
        if not self.wanted(run):
            return ()
        return self.share([file for file in run if TESTS / self.name in file.parents])


def _outside(run: Files) -> bool:
    return bool(run) and not pod_network.inside() and not ELSEWHERE


def _beside_processes(run: Files) -> bool:
    return any(PROCESS in file.parents for file in run)


def _of_several_folders(run: Files) -> bool:
    return any(PROCESS not in file.parents for file in run)


def _making() -> str:
    if kube_assets.found(*pod_network.SETS):
        return ""
    return "Kubernetes' servers are made beside the other tests, once, in about 10 minutes"


LANES = (
    Lane("process", (), _of_several_folders, second_half),
    Lane("unit", (), _beside_processes),
    Lane("kube", (sys.executable, "-m", "tests.kube.pod_network"), _outside, note=_making),
)
"""In the order of their reports, which follow those of all other tests."""


class OpenLane:
    """One lane in one run."""

    def __init__(self, lane: Lane, run: Files) -> None:
        self.lane = lane
        self.files = frozenset(lane.files(run))
        """Whose tests are its own."""
        self._inner: InnerPytest

    def start(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Starts its pytest with `items`."""
        folder = config._tmp_path_factory.mktemp(self.lane.name)  # type: ignore[attr-defined]
        self._inner = InnerPytest(config, items, folder, self.lane.launcher)
        config.add_cleanup(self._inner.close)
        if note := self.lane.note():
            config.get_terminal_writer().line(f"{note}; progress: {self._inner.log}")

    def run(self, item: pytest.Item) -> None:
        """Reports one of its tests, once it is over."""
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in self._inner.reports(item):
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


class OpenLanes:
    """Those that are opened in one run."""

    def __init__(self, items: Sequence[pytest.Item]) -> None:
        """`items`: all tests of the run."""
        run = frozenset(item.path for item in items)
        self._lanes = [OpenLane(lane, run) for lane in LANES]

    def place(self, item: pytest.Item) -> int:
        """Where a test is reported: -1 for one of no lane, then by lane."""
        holders = (n for n, opened in enumerate(self._lanes) if item.path in opened.files)
        return next(holders, -1)

    def start(self, session: pytest.Session) -> None:
        """Starts those that have tests in this run."""
        for number, opened in enumerate(self._lanes):
            items = [item for item in session.items if self.place(item) == number]
            if items:
                opened.start(session.config, items)

    def run(self, item: pytest.Item) -> bool:
        """Whether a test is one of a lane, and has been reported."""
        number = self.place(item)
        if number >= 0:
            self._lanes[number].run(item)
        return number >= 0
