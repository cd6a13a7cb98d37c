"""A minute of the standing attack: `python -m tests.attack` finds nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.workers import START_SECONDS

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")


def test_a_minute_of_the_standing_attack_finds_nothing() -> None:
    command = [sys.executable, "-m", "tests.attack", "--minutes", "1", "--seed", "1"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=4 * START_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
