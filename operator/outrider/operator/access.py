"""What the operator must be allowed to do, asked of the API server before anything else.

A permission that is missing would otherwise show as a watch that hears nothing. Leaves granting to
the chart.
"""

import asyncio
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from outrider.operator.cluster import Cluster
from outrider.operator.kinds import CHILDREN, EVENT, LEASE, POD, SERVICE, Kind

MOST_AT_ONCE = 16
MOST_NAMED = 12
"""Missing permissions that one message names."""


class Forbidden(Exception):
    """Permissions are missing; the message names them."""


@dataclass(frozen=True, slots=True)
class Need:
    """One thing that must be allowed; `namespace` None: in all."""

    verb: str
    kind: Kind
    namespace: str | None
    subresource: str = ""

    @property
    def attributes(self) -> dict[str, str]:
        """As a SelfSubjectAccessReview has them."""
        return {
            "namespace": self.namespace or "",
            "verb": self.verb,
            "group": self.kind.group,
            "resource": self.kind.plural,
            "subresource": self.subresource,
        }

    def __str__(self) -> str:
        what = self.kind.plural + (f".{self.kind.group}" if self.kind.group else "")
        what += f"/{self.subresource}" if self.subresource else ""
        return f"{self.verb} {what} in {self.namespace or 'all namespaces'}"


def needs(
    namespaces: Sequence[str | None], lease_namespace: str, optional: Collection[Kind] = ()
) -> Iterator[Need]:
    """Everything that an operator does that watches these namespaces; None: all.

    `optional` are the kinds of children that not every cluster serves.
    """
    for verb in ("get", "create", "update"):
        yield Need(verb, LEASE, lease_namespace)
    for namespace in namespaces:
        for kind in (SERVICE, POD, LEASE, *CHILDREN, *optional):
            yield from (Need(verb, kind, namespace) for verb in ("list", "watch"))
        for kind in (*CHILDREN, *optional):
            yield from (Need(verb, kind, namespace) for verb in ("create", "patch", "delete"))
        yield Need("patch", SERVICE, namespace, "status")
        yield Need("create", EVENT, namespace)


async def check(cluster: Cluster, wanted: Iterator[Need]) -> None:
    """Raises `Forbidden` if anything is not allowed, `ClusterError` if nobody answers."""
    places = asyncio.Semaphore(MOST_AT_ONCE)

    async def missing(need: Need) -> Need | None:
        async with places:
            return None if await cluster.allows(need.attributes) else need

    found = await asyncio.gather(*(missing(need) for need in wanted))
    refused = [str(need) for need in found if need is not None]
    if refused:
        more = len(refused) - MOST_NAMED
        rest = f", and {more} more" if more > 0 else ""
        raise Forbidden(f"not allowed: {', '.join(refused[:MOST_NAMED])}{rest}")
