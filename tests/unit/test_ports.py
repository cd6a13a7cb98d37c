"""Ports for servers of tests: each pytest has its own."""

import subprocess
import sys
from pathlib import Path

from tests.ports import BLOCK, free_port

ROOT = Path(__file__).parents[2]


def test_no_port_is_given_twice_within_a_block() -> None:
    given = [free_port() for _ in range(BLOCK // 2)]
    assert len(set(given)) == len(given)


def test_processes_have_ports_of_their_own() -> None:
    code = f"from tests.ports import free_port; print(*[free_port() for _ in range({BLOCK})])"
    own = {free_port() for _ in range(BLOCK)}
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    assert own.isdisjoint(map(int, said.stdout.split()))
