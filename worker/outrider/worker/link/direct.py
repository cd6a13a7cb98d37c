"""Direct link: messages of one peer, read and written by the engine's own thread.

What carries its bytes is `shared_memory`. A link that is not direct has a thread of its own.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from outrider.worker.messages import FromPeer


class DirectLink(Protocol):
    """Messages to one peer and from it; a method that raises has ended the link.

    Raises `LinkBroken` if its bytes cannot be trusted, `ProtocolViolation` if the peer broke the
    rules, and `PeerLeft` if it has left; nothing but `close` may be called then.
    """

    def send(self, messages: Sequence[Any]) -> None:
        """Write messages, or keep what has no room; never waits."""

    def receive(self) -> list[FromPeer]:
        """Read what has come, and write what was kept."""

    def fall_asleep(self) -> bool:
        """Ask for a wake-up by the file descriptor; False if something has come already."""

    def awake(self, woken: bool) -> None:
        """End a sleep; `woken`: its descriptor is readable."""

    def fileno(self) -> int:
        """Return the descriptor that is readable when the peer wakes this end, or is gone."""

    def close(self) -> None:
        """Close the descriptor; what else the link has is given up with the object."""
