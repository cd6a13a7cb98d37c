"""Processes of the ranks that follow: started, watched, ended with the process that started them.

Each has the reading end of a pipe, its stdin, and exits when that ends. The caller hears at once of
the end of one of them, for a group that lacks a rank can run nothing.
"""

import contextlib
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

from outrider.worker.parallel.rank_spec import RankSpec

logger = logging.getLogger(__name__)

CLOSE_SECONDS = 5.0
READY = b"ready\n"
"""Written by a rank to stdout once it has loaded its share."""


class Followers:
    """Processes of the following ranks of one model on this machine."""

    def __init__(self, specs: Sequence[RankSpec], lost: Callable[[str], None]) -> None:
        """Start one process each.

        When one has ended the others are killed, and `lost` is called on a thread with the reason.
        """
        self._lost = lost
        self.closing = False
        """True once they are meant to end."""
        self._ready = [threading.Event() for _ in specs]
        self._processes = [start(spec) for spec in specs]
        for spec, process, ready in zip(specs, self._processes, self._ready, strict=True):
            name = f"rank {spec.rank}"
            threading.Thread(
                target=self._watch, args=(name, process, ready), name=name, daemon=True
            ).start()

    @property
    def ready(self) -> bool:
        """True once all have loaded their shares."""
        return all(ready.is_set() for ready in self._ready)

    def kill(self) -> None:
        """Send SIGKILL, which also ends one that is stopped."""
        self.closing = True
        for process in self._processes:
            process.kill()

    def close(self) -> None:
        """End all, and wait until they have ended."""
        self.closing = True
        for process in self._processes:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        for process in self._processes:
            try:
                process.wait(CLOSE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _watch(self, name: str, process: "subprocess.Popen[bytes]", ready: threading.Event) -> None:
        assert process.stdout is not None
        with process.stdout as stdout:
            if stdout.readline() == READY:
                ready.set()
            status = process.wait()
        if not self.closing:
            self.kill()
            self._lost(f"{name} is gone (exit status {status})")


def start(spec: RankSpec) -> "subprocess.Popen[bytes]":
    """Start `python -m outrider.worker rank`, with `spec` on its stdin, which then stays open."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "outrider.worker", "rank"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=() if spec.rendezvous.memory is None else (spec.rendezvous.memory,),
    )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it has ended, which `_watch` notices
        process.stdin.write(spec.to_json().encode() + b"\n")
        process.stdin.flush()
    return process
