"""Transport of the pipeline: one party's links to its neighbours, in one life of their group.

The leader sends records to stage 0 and receives results of the last stage; a stage receives records
of the one before and sends to the next, or results to the leader. Whatever happens to any link of a
group, all links of that group close; the reason travels upstream. `wire` carries it over gRPC.
"""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from outrider.worker.pipeline.records import Record, Results

In = TypeVar("In", covariant=True)
Out = TypeVar("Out", contravariant=True)


class Links(Protocol[In, Out]):
    """Links of one party; for one thread."""

    @property
    def closed(self) -> str | None:
        """Reason why the group has ended; None: it lives."""

    @property
    def received_bytes(self) -> int:
        """Bytes received in this group, with what the transport adds in them."""

    @property
    def sent_bytes(self) -> int:
        """Bytes sent likewise."""

    def send(self, message: Out) -> None:
        """Send without waiting, after all that was sent before; drop it if the group has ended."""

    def poll(self) -> Sequence[In]:
        """Take what has come, in order. Raises `StageLost` once the group has ended."""

    def receive(self, seconds: float | None) -> Sequence[In]:
        """Wait for something to come, at most `seconds` (None: no limit); then as `poll`."""

    def close(self, reason: str) -> None:
        """End the group; those before this party get the reason, up to the leader."""


StageLinks = Links[Record, Record | Results]
