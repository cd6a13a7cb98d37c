"""Whether a worker hangs: by its answers, and before the first one by the state of its process."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from outrider.cli.access import OPEN
from outrider.cli.workers.health import Liveness, Place
from tests.ports import free_port

SECONDS = 60.0
"""Far more than an answer takes."""


class Health(health_pb2_grpc.HealthServicer):
    """Answers with a status, and remembers the connections over which it was asked."""

    def __init__(self) -> None:
        self.status = health_pb2.HealthCheckResponse.SERVING
        self.peers: list[str] = []

    async def Check(
        self, request: health_pb2.HealthCheckRequest, context: aio.ServicerContext
    ) -> health_pb2.HealthCheckResponse:
        self.peers.append(context.peer())
        return health_pb2.HealthCheckResponse(status=self.status)


@contextlib.asynccontextmanager
async def served(health: Health) -> AsyncIterator[Place]:
    server = aio.server()
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield Place(f"127.0.0.1:{port}", OPEN)
    finally:
        await server.stop(None)


def test_all_questions_go_over_one_connection_while_the_place_stays() -> None:
    async def main() -> None:
        health = Health()
        async with served(health) as first, served(health) as second:
            places = iter([first, first, first, second, second])
            async with Liveness(os.getpid(), lambda: next(places)) as liveness:
                assert not any([await liveness.hangs(SECONDS) for _ in range(5)])
        one, *others = health.peers[:3]
        assert others == [one, one]
        assert health.peers[3] == health.peers[4] != one

    asyncio.run(main())


def test_one_that_has_never_answered_may_load_and_one_that_has_may_not_be_silent() -> None:
    async def main() -> None:
        health, nobody = Health(), Place(f"127.0.0.1:{free_port()}", OPEN)
        async with served(health) as place:
            places = iter([nobody, nobody, place, nobody, place])
            async with Liveness(os.getpid(), lambda: next(places)) as liveness:
                hangs = [await liveness.hangs(SECONDS) for _ in range(5)]
        assert hangs == [False, False, False, True, False]

    asyncio.run(main())


def test_one_that_says_that_it_does_not_live_hangs_whatever_it_has_said_before() -> None:
    async def main() -> None:
        health = Health()
        health.status = health_pb2.HealthCheckResponse.NOT_SERVING
        async with served(health) as place, Liveness(os.getpid(), lambda: place) as liveness:
            assert await liveness.hangs(SECONDS)

    asyncio.run(main())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows who is stopped")
def test_one_that_a_signal_has_stopped_before_its_first_answer_hangs() -> None:
    async def main(process: int) -> list[bool]:
        nobody = Place(f"127.0.0.1:{free_port()}", OPEN)
        async with Liveness(process, lambda: nobody) as liveness:
            before = await liveness.hangs(SECONDS)
            os.kill(process, signal.SIGSTOP)
            os.waitpid(process, os.WUNTRACED)
            return [before, await liveness.hangs(SECONDS)]

    with subprocess.Popen(["sleep", "1000"]) as sleeper:
        try:
            assert asyncio.run(main(sleeper.pid)) == [False, True]
        finally:
            sleeper.kill()
