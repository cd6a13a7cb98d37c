"""Settings that must be in force before anything heavy is imported, and tests beside each other."""

import os

import hypothesis
import pytest

from tests import bytecode
from tests.lanes import OpenLanes

bytecode.keep()
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

LANES = pytest.StashKey[OpenLanes]()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of lanes come last, and have no time limit of their own: the one inside counts."""
    xdist_worker = hasattr(config, "workerinput")  # one of several that hold all tests each
    lanes = config.stash[LANES] = OpenLanes([] if xdist_worker else items)
    items.sort(key=lanes.place)
    for item in items:
        if lanes.place(item) >= 0:
            item.add_marker(pytest.mark.timeout(0), append=False)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Lanes start before the first test of any folder."""
    lanes = session.config.stash.get(LANES, None)  # xdist's controller collects no tests
    if lanes and not session.testsfailed and not session.config.option.collectonly:
        lanes.start(session)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """True for a test that has run in a lane."""
    return item.config.stash[LANES].run(item) or None
