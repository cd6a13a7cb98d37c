"""Requests of a target as they come, wait, are cancelled and counted, whatever runs their passes.

Leaves which of them run, what a pass holds and what it brings to the schedulers of a target in one
piece and of a pipelined one.
"""

import abc
from typing import Any, Generic, TypeVar

from outrider.worker.kv.block_pool import BLOCK
from outrider.worker.messages import (
    Cancel,
    EngineReport,
    Finish,
    FromPeer,
    LinkDown,
    LinkUp,
    SetPolicy,
    Submit,
)
from outrider.worker.target.admission import WaitingQueue
from outrider.worker.target.commit import RequestCommitter
from outrider.worker.target.request import Request

R = TypeVar("R", bound=Request)


class RequestScheduler(abc.ABC, Generic[R]):
    """Every request of one target."""

    committer: RequestCommitter[Any]

    def __init__(self, waiting: WaitingQueue[R], running: list[R], outbox: list[Any]) -> None:
        self.waiting = waiting
        self.running = running
        """Requests that hold KV, by seniority."""
        self.outbox = outbox
        """Messages for the server, and for drafts by gRPC."""

    @property
    @abc.abstractmethod
    def kv_blocks(self) -> tuple[int, int]:
        """KV blocks that are used, and all of them."""

    @abc.abstractmethod
    def submit(self, submit: Submit, now: float) -> None:
        """Let a request wait, or refuse it."""

    @abc.abstractmethod
    def end(self, request: R, finish: Finish, now: float) -> None:
        """End a request that runs and free its KV."""

    def receive(self, message: Any, now: float) -> None:
        """Apply one message of the server process or of a draft."""
        match message:
            case Submit():
                self.submit(message, now)
            case Cancel(request=request, finish=finish):
                self._cancel(request, finish, now)
            case FromPeer() | SetPolicy() | LinkUp() | LinkDown():
                self.committer.sessions.apply(message, now)
            case _:
                raise TypeError(f"a target's engine was sent {message!r}")

    def expire(self, now: float, missing: str = "") -> None:
        """End requests that have waited for their start for as long as they may; `missing`: why
        nothing runs them, empty if something does."""
        for request in self.waiting.pop_expired(now):
            detail = f"no room for this request in {now - request.submit.arrived:.1f} s"
            finish = Finish.STAGES_MISSING if missing else Finish.EXPIRED
            self.committer.close(request, finish, now, missing or detail)

    def report(self) -> EngineReport:
        """Return the counters so far."""
        report = self.committer.stats.report(len(self.running), len(self.waiting))
        self.committer.sessions.count(report.counters)
        used, blocks = self.kv_blocks
        report.counters.kv_slots_used, report.counters.kv_slots = used * BLOCK, blocks * BLOCK
        return report

    def _cancel(self, number: int, finish: Finish, now: float) -> None:
        """End a request; one that has ended already is unknown, and stays so."""
        for request in self.running:
            if request.submit.request == number:
                self.end(request, finish, now)
                return
        waiting = self.waiting.remove(number)
        if waiting is not None:
            self.committer.close(waiting, finish, now)
