"""A service that listens beyond loopback: keys and TLS for clients, and no Control."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.conftest import Folders
from tests.process.workers import ANSWER_SECONDS, START_SECONDS


@pytest.mark.skipif(sys.platform != "linux", reason="network namespaces need Linux")
def test_beyond_loopback_a_service_wants_a_key_and_shows_no_control(
    folders: Folders, tmp_path: Path
) -> None:
    command = ("-m", "tests.process.beyond_loopback", str(folders.target), str(tmp_path))
    done = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        timeout=START_SECONDS + 4 * ANSWER_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["address"].startswith("127.0.0.1:"), "as it is reached from here"
    assert found["with a key"] == ["Result", "UNIMPLEMENTED"]
    assert found["without"] == ["UNAUTHENTICATED", "UNAUTHENTICATED"]
