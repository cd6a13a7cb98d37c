"""Full live read every ten minutes, of the services every minute, to detect a wrong watch cache.

A wrong cache cannot be repaired from outside, so the process then counts as unhealthy and is
restarted. Lists each kind once for all services, and again only where something differs; writes
nothing.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence
from typing import NoReturn

from outrider.operator.cluster.client import Cluster, ClusterError
from outrider.operator.cluster.kinds import SERVICE, ObjectKind, ServiceKey
from outrider.operator.cluster.watch_handlers import Watches
from outrider.operator.naming import SELECTOR
from outrider.operator.work_queue import WorkQueue

SERVICE_SECONDS = 60.0
"""Seconds between two reads of the services, one list for all of them: a watch may miss what is
written while its definition changes, and nothing else would show it."""
FULL_EVERY = 10
"""One of so many reads is of all kinds."""
GRACE = 30.0
"""Seconds that a watch may lag behind a list before it counts as wrong: one that is late by some
seconds, in a storm of new objects, is right in the end, and a restart would make it later."""
log = logging.getLogger(__name__)
Versions = dict[str, str]
"""Resource versions by uid."""


async def resync(
    cluster: Cluster,
    watches: Watches,
    queue: WorkQueue[ServiceKey],
    namespaces: Sequence[str | None],
    stale: Callable[[str], None],
) -> NoReturn:
    """Compare and enqueue for ever; call `stale` with the kind whose watch has missed something."""
    for number in itertools.count(1):
        await asyncio.sleep(SERVICE_SECONDS)
        full = number % FULL_EVERY == 0
        for kind in watches.listed if full else (SERVICE,):
            try:
                if await missed(cluster, watches, kind, namespaces, GRACE):
                    stale(f"the watch of {kind.plural} has missed something")
            except ClusterError as error:
                log.warning("the full read failed: %s", error)
        for key in queue.keys if full else ():
            queue.enqueue(key)
    raise AssertionError("counting does not end")


async def missed(
    cluster: Cluster,
    watches: Watches,
    kind: ObjectKind,
    namespaces: Sequence[str | None],
    grace: float,
) -> bool:
    """Return True if the cache contradicts what two lists, `grace` seconds apart, agree on."""
    first = await _listed(cluster, kind, namespaces)
    before = watches.versions(kind)
    if first == before:
        return False
    await asyncio.sleep(grace)
    known = watches.versions(kind)
    second = await _listed(cluster, kind, namespaces)
    steady = {uid: version for uid, version in first.items() if second.get(uid) == version}
    older = any(known.get(uid) != version for uid, version in steady.items())
    gone = any(uid in known and uid not in first and uid not in second for uid in before)
    return older or gone


async def _listed(cluster: Cluster, kind: ObjectKind, namespaces: Sequence[str | None]) -> Versions:
    selector = None if kind is SERVICE else SELECTOR
    found: Versions = {}
    for namespace in namespaces:
        for body in await cluster.items(kind, namespace, selector):
            found[body["metadata"]["uid"]] = body["metadata"]["resourceVersion"]
    return found
