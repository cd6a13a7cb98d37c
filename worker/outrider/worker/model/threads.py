"""Threads that run one compiled call together.

The call itself says which share each thread takes; barriers inside it are
`outrider.kernels.cpu.barrier`.
"""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from outrider.kernels.cpu.barrier import make_gate


class ThreadPool:
    """`threads` threads, the caller's among them; helpers sleep between calls and end with it."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.gate = make_gate()
        self._work: list[SimpleQueue[tuple[Any, ...] | None]] = []
        self._done = threading.Semaphore(0)
        self._failure: BaseException | None = None
        for number in range(1, threads):
            queue: SimpleQueue[tuple[Any, ...] | None] = SimpleQueue()
            self._work.append(queue)
            threading.Thread(target=self._help, args=(number, queue), daemon=True).start()

    def run(self, function: Callable[..., None], *arguments: Any) -> None:
        """Calls function(*arguments, gate, thread, threads) on every thread and waits for all."""
        for queue in self._work:
            queue.put((function, *arguments))
        function(*arguments, self.gate, 0, self.threads)
        for _ in self._work:
            self._done.acquire()
        if self._failure is not None:
            raise self._failure

    def _help(self, number: int, queue: "SimpleQueue[tuple[Any, ...] | None]") -> None:
        while (work := queue.get()) is not None:
            function, *arguments = work
            try:
                function(*arguments, self.gate, number, self.threads)
            except BaseException as error:
                self._failure = error
            del work, function, arguments  # a sleeping thread must keep no weights alive
            self._done.release()

    def close(self) -> None:
        """Ends the helpers."""
        for queue in self._work:
            queue.put(None)
