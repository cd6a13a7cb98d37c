"""Processes of ranks that follow: started, watched, ended with whoever started them.

Each holds the reading end of a pipe, its stdin, and exits when that ends; the end of one of them is
told to the caller at once, for a group that lacks a rank can run nothing.
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
"""What a rank writes to stdout once it holds its share."""


class Followers:
    """Ranks of one model on this machine."""

    def __init__(self, works: Sequence[RankSpec], lost: Callable[[str], None]) -> None:
        """Starts one process each; when one has ended the others are killed and `lost` is called,
        on a thread, with what happened."""
        self._lost = lost
        self.closing = False
        """Whether their ends are wanted."""
        self._ready = [threading.Event() for _ in works]
        self._processes = [start(work) for work in works]
        for work, process, ready in zip(works, self._processes, self._ready, strict=True):
            name = f"rank {work.rank}"
            threading.Thread(
                target=self._watch, args=(name, process, ready), name=name, daemon=True
            ).start()

    @property
    def ready(self) -> bool:
        """Whether all hold their shares."""
        return all(ready.is_set() for ready in self._ready)

    def kill(self) -> None:
        """SIGKILL: also for one that is stopped."""
        self.closing = True
        for process in self._processes:
            process.kill()

    def close(self) -> None:
        """Ends all, and waits until they have ended."""
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


def start(work: RankSpec) -> "subprocess.Popen[bytes]":
    """`python -m outrider.worker rank`, with its work on stdin, which then stays open."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "outrider.worker", "rank"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=() if work.memory is None else (work.memory,),
    )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it has ended: whoever watches it says so
        process.stdin.write(work.to_json().encode() + b"\n")
        process.stdin.flush()
    return process
