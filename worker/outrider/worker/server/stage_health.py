"""Health of one stage's process, as the worker that started it sees it: asked, and looked at.

Leaves ending it, and starting it again, to `stage_processes`.
"""

import enum
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from outrider.contract.process_status import facts_of, is_stopped
from outrider.contract.settings import PeerSettings
from outrider.worker.host.peers import open_channel

NO_PROXY = (("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1))
"""Stages are on loopback: whatever the environment names, no proxy answers for them."""
SERVING = health_pb2.HealthCheckResponse.SERVING


class StageAnswer(enum.StrEnum):
    """What a stage says when it is asked whether it serves."""

    NONE_LISTENS = "does not listen yet"
    LOADS = "loads"
    SERVES = "serves"
    SILENCE = "listens, and does not answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthQuestions:
    """How stages are asked whether they serve; seconds."""

    answer: float = 5.0
    """Longest that one takes to say so, which has served; one that has a pass to run, too."""
    loading_answer: float = 300.0
    """Likewise while it loads: seconds of work that lets no other thread answer are minutes on a
    busy machine, and who ends it then makes it begin again."""
    pause: float = 1.0
    """Seconds between two questions."""
    late: float = 60.0
    """After which one that does not serve yet is spoken of, again and again."""


@dataclass(slots=True)
class StageHealth:
    """What is known of one life of a stage."""

    process: int
    questions: HealthQuestions
    clock: Callable[[], float] = time.monotonic
    peers: PeerSettings | None = None
    """Certificates that the stage is known by; None: it wants none."""
    answer: StageAnswer = StageAnswer.NONE_LISTENS
    """The last one."""
    _stopped: bool = False
    """It was at the last look."""
    _began: float = field(init=False)
    _spoken: float = field(init=False)
    """When it was spoken of last."""

    def __post_init__(self) -> None:
        self._began = self._spoken = self.clock()

    async def look(self, address: str) -> str:
        """Ask and look; return why the process has to be ended, or nothing."""
        was_stopped, self._stopped = self._stopped, is_stopped(self.process)
        if self._stopped:  # it may have been for a moment
            return "is stopped" if was_stopped else ""
        served = self.answer is StageAnswer.SERVES
        seconds = self.questions.answer if served else self.questions.loading_answer
        self.answer = await answer_of(address, seconds, self.peers)
        return f"{self.answer} within {seconds:g} s" if self.answer is StageAnswer.SILENCE else ""

    def late(self) -> str:
        """Return what is to be said of a stage that takes long, or nothing."""
        now = self.clock()
        if self.answer is StageAnswer.SERVES or now - self._spoken < self.questions.late:
            return ""
        self._spoken = now
        words = f"is not ready {now - self._began:.0f} s after its start: it {self.answer}"
        return f"{words}; {facts_of(self.process)}"


async def answer_of(address: str, seconds: float, peers: PeerSettings | None = None) -> StageAnswer:
    """Ask whatever listens at an address whether it serves, for at most so many seconds; raises
    `OSError` where the certificate to ask with cannot be read."""
    name = peers.target if peers else ""
    async with open_channel(address, NO_PROXY, peers, name) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        try:
            found = await health.Check(health_pb2.HealthCheckRequest(), timeout=seconds)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                return StageAnswer.NONE_LISTENS
            late = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            return StageAnswer.SILENCE if late else StageAnswer.LOADS
    return StageAnswer.SERVES if found.status == SERVING else StageAnswer.LOADS
