"""Settings that must be in force before anything heavy is imported, and groups of tests."""

import os
import signal
from typing import Any

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


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Choose how tests are given to processes, where there is pytest-xdist."""
    from tests.scheduling import Groups

    return Groups(config, log) if config.getvalue("dist") == "loadgroup" else None
