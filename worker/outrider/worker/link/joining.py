"""Joining of two processes, such as target and draft: they meet in a store of one, and are a pair.

The store is for one link; its port and a prefix go to the other by gRPC. They protect nothing:
whoever reaches the port may join (docs/decisions/0018). Joining blocks, so it has a
thread; who does not come in time has no pair. Leaves what the pair is used for to `distributed`.
Loads torch where a pair is joined.
"""

import asyncio
import logging
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from outrider.protos.v1 import drafter_pb2 as pb
from outrider.worker.errors import LinkBroken
from outrider.worker.host.address import address_towards

if TYPE_CHECKING:
    from outrider.worker.link.process_pair import ProcessPair

logger = logging.getLogger(__name__)

SECONDS = 15.0
"""Longest that one side waits for the other. torch's store asks DNS for the name of the address it
connects to: 5 seconds for each answer that is lost, seen in 1 of 20 joinings on loopback."""
MAX_JOINING = 16
"""Links of a draft that may be joining at once; each takes a thread."""
PREFIX_BYTES = 16
MAX_PORT = 1 << 16
HOST, GUEST = 0, 1
"""Numbers of the two in their group: the target, or whoever opened the store, and the other."""


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """An open store, for one other process: a target's for a draft, a stage's for the next one."""

    host: str
    """Of this process, as the other reaches it."""
    port: int
    prefix: str
    store: Any
    seconds: float
    """Longest that the two wait for each other."""

    def offer(self) -> pb.Rendezvous:
        """Return what the other has to know."""
        return pb.Rendezvous(host=self.host, port=self.port, prefix=self.prefix)

    def join(self) -> "ProcessPair":
        """Wait for the other; raise `LinkBroken`."""
        return _pair(self.store, self.prefix, HOST, self.host, self.seconds)


def require() -> None:
    """Load what joining takes, a matter of seconds; raise `LinkBroken`, saying what is missing."""
    from outrider.worker.host.rendezvous import lacking

    if missing := lacking():
        raise LinkBroken(missing)
    from outrider.worker.link import distributed  # noqa: F401


def open_rendezvous(other: str, seconds: float | None = None) -> Rendezvous:
    """Open a store for the process at an address; raise `LinkBroken`.

    `seconds` that the two wait for each other at most; None: `SECONDS`.
    """
    from outrider.worker.host.rendezvous import open_store

    seconds = SECONDS if seconds is None else seconds
    host = other.rpartition(":")[0].strip("[]")
    try:
        own = address_towards(host)
        store, port = open_store("", 0, 2, seconds)
    except (OSError, RuntimeError) as error:
        raise LinkBroken(f"{other} has nowhere to join: {error}") from None
    return Rendezvous(own, port, secrets.token_hex(PREFIX_BYTES), store, seconds)


def join(offer: pb.Rendezvous, seconds: float | None = None) -> "ProcessPair":
    """Join the process that sent `offer`; raise `LinkBroken`. `seconds` as above."""
    from outrider.worker.host.rendezvous import join_store

    seconds = SECONDS if seconds is None else seconds
    where = f"{offer.host}:{offer.port}"
    if not 0 < offer.port < MAX_PORT:
        raise LinkBroken(f"the store at {where} cannot be joined: there is no such port")
    try:
        own = address_towards(offer.host)
        store = join_store(offer.host, offer.port, 2, seconds)
    except (OSError, RuntimeError) as error:
        raise LinkBroken(f"the store at {where} cannot be joined: {error}") from None
    return _pair(store, offer.prefix, GUEST, own, seconds)


def _pair(store: Any, prefix: str, number: int, host: str, seconds: float) -> "ProcessPair":
    from outrider.worker.host.rendezvous import prefix_store
    from outrider.worker.link.process_pair import ProcessPair

    return ProcessPair(prefix_store(prefix, store), number, host, seconds)


@dataclass(slots=True)
class Joining:
    """Links that are joining, each on a thread of its own."""

    count: int = 0

    async def run(self, join: "Callable[[], ProcessPair]") -> "ProcessPair":
        """Return the pair that `join` returns; one that comes too late is closed.

        Raises `LinkBroken` if there is none after `SECONDS`, or if too many are joining.
        """
        if self.count >= MAX_JOINING:
            raise LinkBroken(f"{MAX_JOINING} other links are joining")
        joined: asyncio.Future[ProcessPair] = asyncio.get_running_loop().create_future()
        try:
            threading.Thread(target=self._join, args=(join, joined)).start()  # it ends soon
        except RuntimeError as error:
            raise LinkBroken(f"nothing can join: {error}") from None
        self.count += 1
        try:
            return await asyncio.wait_for(joined, SECONDS)
        except TimeoutError:
            raise LinkBroken(f"the other side did not join within {SECONDS:.0f} s") from None

    def _join(
        self, join: "Callable[[], ProcessPair]", joined: "asyncio.Future[ProcessPair]"
    ) -> None:
        """Join, on a thread of its own, and hand over what came of it."""
        found: ProcessPair | LinkBroken
        try:
            found = join()
        except LinkBroken as error:
            found = error
        except Exception as error:
            logger.exception("a link cannot be joined")
            found = LinkBroken(f"joining failed: {type(error).__name__}: {error}")
        try:
            joined.get_loop().call_soon_threadsafe(self._joined, joined, found)
        except RuntimeError:  # the loop is closed: the process is about to end
            logger.info("a link was joined too late")

    def _joined(
        self, joined: "asyncio.Future[ProcessPair]", found: "ProcessPair | LinkBroken"
    ) -> None:
        self.count -= 1
        if isinstance(found, LinkBroken):
            if not joined.done():
                joined.set_exception(found)
        elif joined.done():
            found.close()
        else:
            joined.set_result(found)
