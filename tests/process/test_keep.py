"""`keep`: a draft that ends, or no longer answers, is started again by a process that stays.

Workers but the last test's are scripts that say on their standard output what happens to them.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from outrider.contract.settings import Role
from tests.ports import free_port
from tests.process.conftest import Folders
from tests.process.workers import START_SECONDS, wait_until

WORKER = """
import os, signal, sys

def say(words):
    os.write(1, f"{words}\\n".encode())

def ended(*_):
    say("told to end")
    sys.exit(0)

signal.signal(signal.SIGTERM, ended)
say(f"started {os.getpid()}")
os.read(int(sys.argv[2]), 1)
say("orphaned")
"""
KEEPER = """
import asyncio, os, sys
from outrider.worker.host.keep import Keeper, KeeperTimes

def is_alive():
    found = os.path.exists(sys.argv[2])
    if found:
        os.write(1, b"answered\\n")
    return found

async def run():
    rhythm = KeeperTimes(first=0.01, last=0.02, period=0.01, loading=1000, silent=0.02)
    return await Keeper((sys.executable, "-c", sys.argv[1]), is_alive, rhythm).run()

sys.exit(asyncio.run(run()))
"""


class Kept:
    """A keeper of scripts, and what they say; they answer while the file `health` is there."""

    def __init__(self, health: Path) -> None:
        self.health = health
        self.process = subprocess.Popen(
            [sys.executable, "-c", KEEPER, WORKER, str(health)], stdout=subprocess.PIPE, text=True
        )

    def next(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def next_pid(self) -> int:
        while not (said := self.next()).startswith("started"):
            assert said, "the keeper is gone"
        return int(said.split()[1])


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    found = Kept(tmp_path / "health")
    yield found
    found.process.kill()
    found.process.communicate()


def test_a_worker_that_ends_is_started_again(kept: Kept) -> None:
    lives = set()
    for _ in range(3):
        lives.add(pid := kept.next_pid())
        os.kill(pid, signal.SIGKILL)
    assert len({*lives, kept.next_pid()}) == 4
    assert kept.process.poll() is None


def test_a_request_to_stop_is_passed_on_and_awaited(kept: Kept) -> None:
    kept.next_pid()
    kept.process.terminate()
    assert kept.next() == "told to end"
    assert kept.process.wait() == 0


def test_a_worker_ends_with_its_keeper(kept: Kept) -> None:
    kept.next_pid()
    kept.process.kill()
    assert kept.next() == "orphaned"


def test_a_worker_that_answers_no_more_is_replaced(kept: Kept) -> None:
    kept.health.touch()
    before = kept.next_pid()
    while kept.next() != "answered":
        assert kept.process.poll() is None
    kept.health.unlink()
    assert kept.next_pid() != before


def test_a_draft_serves_again_after_a_crash(folders: Folders, tmp_path: Path) -> None:
    http = f"127.0.0.1:{free_port()}"
    settings = folders.settings(Role.DRAFT, http_listen=http)
    file = tmp_path / "settings.json"
    file.write_text(settings.to_json())
    command = (sys.executable, "-P", "-m", "outrider.worker", "keep", "--settings", str(file))

    def serves() -> bool:
        try:
            return httpx.get(f"http://{http}/readyz").status_code == 200
        except httpx.TransportError:
            return False

    with subprocess.Popen(command) as keeper:
        children = Path(f"/proc/{keeper.pid}/task/{keeper.pid}/children")
        wait_until(serves, START_SECONDS, "the draft serves")
        os.kill(int(first := children.read_text()), signal.SIGKILL)
        wait_until(lambda: children.read_text() not in ("", first), START_SECONDS, "another life")
        wait_until(serves, START_SECONDS, "the draft serves again")
        keeper.terminate()
    assert keeper.returncode == 0


def test_a_target_is_not_kept(folders: Folders, tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text(folders.settings(Role.TARGET).to_json())
    command = (sys.executable, "-P", "-m", "outrider.worker", "keep", "--settings", str(file))
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "only a draft" in ended.stderr
