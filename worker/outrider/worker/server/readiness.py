"""Whether a target that starts still waits for its drafts: a new one serves once they help it.

Only looks at links; leaves them to `draft_links` and what readiness means to `server_parts`.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence

from outrider.protos.v1 import control_pb2 as pb

POLL_SECONDS = 0.02
KNOWN = (pb.LINK_STATE_UP, pb.LINK_STATE_REFUSED)
logger = logging.getLogger(__name__)


async def wait_for_first_link(links: Callable[[], Sequence[pb.Link]], seconds: float) -> None:
    """Returns once a link is up or refused, none is wanted any more, or so long has passed."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not _known(links()):
                await asyncio.sleep(POLL_SECONDS)
            return
    logger.warning("no draft was found within %.0f s; decoding plainly meanwhile", seconds)


def _known(links: Sequence[pb.Link]) -> bool:
    return not links or any(link.state in KNOWN for link in links)
