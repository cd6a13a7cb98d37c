"""A full live read every ten minutes, of the services every minute: a watch that has missed
something is found out.

A cache that is wrong cannot be mended from outside, so the process then counts as unhealthy and is
started anew. Lists each kind once for all services, and again only where something differs; changes
nothing itself.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence
from typing import NoReturn

from outrider.operator.cluster import Cluster, ClusterError
from outrider.operator.interfaces import Key
from outrider.operator.kinds import SERVICE, ObjectKind
from outrider.operator.naming import SELECTOR
from outrider.operator.watch_handlers import Watches
from outrider.operator.work_queue import Wakes

SERVICE_SECONDS = 60.0
"""Between two reads of the services, one list for all of them: a watch may miss what is written in
the moment in which its definition changes, and nothing else would tell of it."""
FULL_EVERY = 10
"""Of so many reads one is of all kinds."""
GRACE = 5.0
"""What a watch may lag behind a list before it counts as having missed something."""
log = logging.getLogger(__name__)
Versions = dict[str, str]
"""Resource versions by uid."""


async def resync(
    cluster: Cluster,
    watches: Watches,
    wakes: Wakes[Key],
    namespaces: Sequence[str | None],
    stale: Callable[[str], None],
) -> NoReturn:
    """Compares and wakes for ever; `stale` is told which kind's watch has missed something."""
    for number in itertools.count(1):
        await asyncio.sleep(SERVICE_SECONDS)
        full = number % FULL_EVERY == 0
        for kind in watches.listed if full else (SERVICE,):
            try:
                if await missed(cluster, watches, kind, namespaces, GRACE):
                    stale(f"the watch of {kind.plural} has missed something")
            except ClusterError as error:
                log.warning("the full read failed: %s", error)
        for key in wakes.keys if full else ():
            wakes.wake(key)
    raise AssertionError("counting does not end")


async def missed(
    cluster: Cluster,
    watches: Watches,
    kind: ObjectKind,
    namespaces: Sequence[str | None],
    grace: float,
) -> bool:
    """Whether the cache contradicts what two lists, `grace` seconds apart, agree on."""
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
