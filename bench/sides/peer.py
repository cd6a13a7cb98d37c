"""A process that answers one JSON object a line with one: the other side of a comparison.

Leaves what is asked to the benchmarks. The process ends when its input does.
"""

import asyncio
import contextlib
import json
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PYTHON = ("python", "-P")  # a folder above has an operator.py
OPENVINO = "openvino-genai==2026.4.1.0"
BOOTSTRAP = Path(__file__).parents[2] / "tools" / "bootstrap"
LINE_LIMIT = 1 << 22
"""Bytes of the longest line."""


class DoesNotRun(RuntimeError):
    """A peer could not be built, or ended; the message says which."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A peer that runs."""

    name: str
    process: Process
    facts: Mapping[str, Any]
    """What it said first."""

    async def ask(self, **asked: Any) -> dict[str, Any]:
        """Return the answer to one object."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(asked).encode() + b"\n")
        return await _line_of(self.name, self.process)


@contextlib.asynccontextmanager
async def started(
    name: str, command: Sequence[str | Path], environment: Mapping[str, str] | None = None
) -> AsyncIterator[Peer]:
    """Start a peer, and wait for what it says first; raises `DoesNotRun` if it ends before."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command), stdin=PIPE, stdout=PIPE, env=environment, limit=LINE_LIMIT
    )
    try:
        yield Peer(name, process, await _line_of(name, process))
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


async def _line_of(name: str, process: Process) -> dict[str, Any]:
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        raise DoesNotRun(f"{name} ended with exit status {await process.wait()}")
    found: dict[str, Any] = json.loads(line)
    return found


def openvino(*options: str | Path) -> list[str | Path]:
    """Return the command of an OpenVINO peer, in an environment of its own."""
    run = [uv(), "run", "--no-project", "--isolated", "--with", OPENVINO]
    script = Path(__file__).parent / "openvino_peer.py"
    return [*run, "--python", sys.executable, *PYTHON, script, *options]


def uv() -> str:
    """Return the path of the project's uv, which is installed if there is none."""
    done = subprocess.run([BOOTSTRAP], check=True, capture_output=True, text=True)
    return done.stdout.strip()
