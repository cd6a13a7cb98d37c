"""Direct links of one engine: those that its own thread reads and writes.

A link that breaks is given up, and its stream told; whatever it raises, it never ends the engine,
nor a step of others. Leaves what carries the bytes to `link`.
"""

import logging
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any

from outrider.worker.engine.poller import Poller
from outrider.worker.errors import LinkBroken, WorkerError
from outrider.worker.messages import DirectLinkLost, DirectLinkUp, FromPeer, LinkDown, ToPeer

if TYPE_CHECKING:
    from outrider.worker.link.shared_memory import SharedMemoryLink  # loads numba

logger = logging.getLogger(__name__)


class DirectLinks:
    """Direct links by number, for the engine's thread alone."""

    def __init__(self, readable: Poller, on_lost: Callable[[DirectLinkLost], None]) -> None:
        """`readable`: what the engine sleeps on; `on_lost` has the stream of a lost link end."""
        self._links: dict[int, SharedMemoryLink] = {}
        self._readable = readable
        self._on_lost = on_lost

    def for_scheduler(self, messages: Iterable[Any]) -> list[Any]:
        """Attach and detach links by the news of the streams' thread; return what goes on.

        The last messages of a direct link come before the news that it is down.
        """
        passed: list[Any] = []
        for message in messages:
            if isinstance(message, DirectLinkUp):
                self._attach(message.up.link, message.direct)
                passed.append(message.up)
            elif isinstance(message, LinkDown):
                passed += self._received(message.link)
                self._detach(message.link)
                passed.append(message)
            else:
                passed.append(message)
        return passed

    def receive(self) -> list[FromPeer]:
        """Read every link."""
        if not self._links:
            return []
        return [message for link in tuple(self._links) for message in self._received(link)]

    def send(self, message: ToPeer) -> bool:
        """Write messages to their link, if it is a direct one; return False if it is not."""
        direct = self._links.get(message.link)
        if direct is None:
            return False
        try:
            direct.send(message.messages)
        except Exception as error:
            self._lose(message.link, error)
        return True

    def __contains__(self, link: object) -> bool:
        """True if the engine's own thread writes to a link, at a few µs a message."""
        return link in self._links

    def fall_asleep(self) -> bool:
        """Ask every peer for a wake-up; False if one of them has sent something already."""
        asleep = True
        for link, direct in tuple(self._links.items()):
            try:
                asleep = direct.fall_asleep() and asleep
            except Exception as error:
                self._lose(link, error)
        return asleep

    def awake(self, woken_by: Collection[int]) -> None:
        """End a sleep; `woken_by`: descriptors that are readable."""
        for link, direct in tuple(self._links.items()):
            try:
                direct.awake(direct.fileno() in woken_by)
            except Exception as error:
                self._lose(link, error)

    def _attach(self, link: int, direct: "SharedMemoryLink") -> None:
        self._links[link] = direct
        self._readable.register(direct.fileno())

    def _detach(self, link: int) -> None:
        direct = self._links.pop(link, None)
        if direct is not None:
            self._readable.unregister(direct.fileno())
            direct.close()

    def _received(self, link: int) -> list[FromPeer]:
        direct = self._links.get(link)
        if direct is None:
            return []
        try:
            return direct.receive()
        except Exception as error:
            self._lose(link, error)
            return []

    def _lose(self, link: int, error: Exception) -> None:
        """Give up a link that raised `error`; one that no link should raise is broken, too."""
        if isinstance(error, WorkerError):
            logger.warning("link %d ends: %s", link, error)
            lost = error
        else:
            logger.error("link %d ends: its messages cannot be handled", link, exc_info=error)
            lost = LinkBroken(f"its messages cannot be handled: {type(error).__name__}: {error}")
        self._detach(link)
        self._on_lost(DirectLinkLost(link, lost))
