"""`serve` on a machine that does not lead: its ranks, and their readiness over HTTP.

Answers no requests. Leaves the work of a rank to `launch.follower`. The leader is on another
machine; when it or a rank is gone, this worker ends, to be started again with the whole group.
"""

import asyncio
import functools
import logging
from collections.abc import Callable

from outrider.contract import process
from outrider.contract.process import EXIT_ADDRESS_IN_USE
from outrider.contract.settings import WorkerSettings
from outrider.worker.api.http.app import draft_application
from outrider.worker.api.http.server import HttpServer, listen
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.errors import Stopping
from outrider.worker.host.device import torch_device
from outrider.worker.launch.prepare import Models, prepare_models
from outrider.worker.parallel.placement import RankPlacement
from outrider.worker.parallel.processes import Followers
from outrider.worker.parallel.rank_spec import GROUP_LOST, Rendezvous, rank_specs
from outrider.worker.server.daemon_work import unless_stopped
from outrider.worker.server.shutdown import Shutdown

logger = logging.getLogger(__name__)


class FollowerNode:
    """The ranks of this machine."""

    def __init__(
        self,
        settings: WorkerSettings,
        placement: RankPlacement,
        prepare: Callable[[WorkerSettings], Models] = prepare_models,
    ) -> None:
        self._settings = settings
        self._prepare = prepare
        self._placement = placement
        self._followers: Followers | None = None
        self._lost = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    @property
    def ready(self) -> bool:
        """True if all ranks of this machine have met the others and hold their shards."""
        return self._followers is not None and self._followers.ready

    async def run(self, stop: Shutdown) -> int:
        """Run until a rank is gone or a shutdown is requested; return the exit status.

        The leader is told to stop at the same time, and ends the ranks once its answers are
        finished; until then they are needed.

        Raises `Stopping` if that is before the model is prepared.
        """
        prepare = functools.partial(self._prepare, self._settings)
        models = await unless_stopped(prepare, "preparing", stop.requested)
        await asyncio.to_thread(self._start, models.own)
        waits = [asyncio.create_task(e.wait()) for e in (stop.requested, self._lost)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        if self._lost.is_set():
            return GROUP_LOST
        await stop.wait_while(lambda: self.ready and not self._lost.is_set())
        return 0

    def close(self) -> None:
        if self._followers is not None:
            self._followers.kill()

    def _start(self, own: PreparedModel) -> None:
        host = self._placement.own_address()
        device = torch_device(self._settings.device)
        rendezvous = Rendezvous(host, process.RENDEZVOUS_PORT)
        specs = rank_specs(self._settings, own, self._placement, rendezvous, device)
        self._followers = Followers(specs, self._ended)

    def _ended(self, reason: str) -> None:
        logger.error("%s: this machine's ranks end", reason)
        self._loop.call_soon_threadsafe(self._lost.set)


async def serve_ranks(
    settings: WorkerSettings, placement: RankPlacement, parent: int | None
) -> int:
    """Run this machine's ranks until a shutdown is requested; return the exit status.

    `parent` is as for `server.serve`. Raises `ModelError`, and `GroupLost` if the leader's host is
    not found.
    """
    try:
        listener = listen(settings.http_listen) if settings.http_listen else None
    except OSError as error:
        logger.error("cannot listen on %s: %s", settings.http_listen, error)
        return EXIT_ADDRESS_IN_USE
    stop = Shutdown.install(parent, settings.grace_seconds)
    node = FollowerNode(settings, placement)
    http: HttpServer | None = None
    if listener is not None:
        http = HttpServer(draft_application(lambda: node.ready, ()), listener, settings)
        http.start()
    try:
        return await node.run(stop)
    except Stopping:
        return 0
    finally:
        node.close()
        if http is not None:
            await http.close()
