"""A full live read every ten minutes: what the watches have missed is found and said.

Lists each kind once for all services. Changes nothing itself; wakes what differs.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import NoReturn

from outrider.operator.cluster import Cluster, ClusterError
from outrider.operator.kinds import SERVICE, Kind
from outrider.operator.naming import SELECTOR
from outrider.operator.wakes import Wakes
from outrider.operator.watching import LISTED, Watches, owner_of
from outrider.operator.world import Key

SECONDS = 600.0
GRACE = 5.0
"""What a watch may lag behind a list before it counts as missed."""
log = logging.getLogger(__name__)


async def resync(
    cluster: Cluster, watches: Watches, wakes: Wakes[Key], namespaces: Sequence[str | None]
) -> NoReturn:
    """Compares and wakes for ever; an API server that does not answer is asked again later."""
    while True:
        await asyncio.sleep(SECONDS)
        for kind in LISTED:
            for namespace in namespaces:
                try:
                    await _compare(cluster, watches, wakes, kind, namespace)
                except ClusterError as error:
                    log.warning("the full read failed: %s", error)
        for key in wakes.keys:
            wakes.wake(key)


async def _compare(
    cluster: Cluster, watches: Watches, wakes: Wakes[Key], kind: Kind, namespace: str | None
) -> None:
    selector = None if kind is SERVICE else SELECTOR
    live = {
        body["metadata"]["uid"]: body for body in await cluster.items(kind, namespace, selector)
    }
    await asyncio.sleep(GRACE)
    known = watches.versions(kind)
    missed = [body for uid, body in live.items() if uid not in known]
    for body in missed:
        log.warning("no watch told of %s %s", kind.name, body["metadata"]["name"])
        key = owner_of(kind, body)
        if key is not None:
            wakes.wake(key)
