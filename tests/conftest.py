"""Settings that must be in force before anything heavy is imported, and groups of tests."""

import os
import signal
from collections.abc import Generator
from pathlib import Path

import hypothesis
import pytest

from tests import bytecode

bytecode.keep()
# A job in the background is born deaf to SIGINT, and so would be all that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Tests start several processes on few cores: one thread each, unless a test says otherwise.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# The tokenizers library warns when a process that used its threads is forked.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# No test reaches the network: models come from installed packages or are made on the spot.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Triton decides when it is imported whether kernels are compiled or run by its interpreter on the
# CPU, and torch may import it first. TRITON_INTERPRET=0 is for machines with a device (-m gpu).
os.environ.setdefault("TRITON_INTERPRET", "1")

# No example is too slow: the first one may compile kernels, on a machine that does much else. The
# same examples each time; `pytest --hypothesis-profile=search` looks for others.
hypothesis.settings.register_profile(
    "search", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.register_profile(
    "any machine", hypothesis.settings.get_profile("search"), derandomize=True, database=None
)
hypothesis.settings.load_profile("any machine")

TESTS = Path(__file__).parent
KUBE = TESTS / "kube"


def group(item: pytest.Item) -> str:
    """Return the tests that one pytest process runs, for their fixtures: by default a file's."""
    if marker := item.get_closest_marker("xdist_group"):
        return str(marker.args[0])
    return "kube" if KUBE in item.path.parents else str(item.path.relative_to(TESTS))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tell `pytest --dist loadgroup` each test's group."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(group(item)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Name a test as the command line does, without the group that xdist adds."""
    report = yield
    report.nodeid = report.nodeid.removesuffix(f"@{group(item)}")
    return report
