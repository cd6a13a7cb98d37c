"""One server: started, watched, killed; its log kept.

Knows nothing of what it serves.
"""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TAIL_BYTES = 2000
GO_MEMORY = {"GOGC": "400"}
"""Collect garbage at five times what is alive, not at twice: a seventh of an API server's processor
time, for 0.6 GB more."""


class ServerEnded(RuntimeError):
    """A server is gone; the message holds the end of its log."""


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """One running server."""

    name: str
    process: "subprocess.Popen[bytes]"
    log: Path

    @classmethod
    def start(cls, program: Path, arguments: Sequence[str], folder: Path) -> "ServerProcess":
        """Starts it with its log in `folder`."""
        log = folder / f"{program.name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [program, *arguments],
                cwd=folder,
                env=GO_MEMORY | os.environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for pytest, which ends the servers last
            )
        return cls(program.name, process, log)

    def check(self) -> None:
        """Raises `ServerEnded` if it no longer runs."""
        code = self.process.poll()
        if code is not None:
            raise ServerEnded(f"{self.name} ended with {code}; {self.log} ends:\n{self.tail()}")

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_bytes()[-TAIL_BYTES:].decode(errors="replace")

    def kill(self) -> None:
        """SIGKILL: nothing that a server of a test holds is worth its last words."""
        self.process.kill()
        self.process.wait()
