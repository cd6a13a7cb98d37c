"""Permissions of the operator, checked with the API server before anything else.

A missing permission would otherwise show as a watch without events. Each is asked for by a review
of its own: a list of all (SelfSubjectRulesReview) may be incomplete where not only RBAC authorizes.
Leaves granting to the chart.
"""

import asyncio
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from outrider.operator.cluster.client import Cluster
from outrider.operator.cluster.kinds import (
    CHILDREN,
    EVENT,
    GUARDED,
    KEPT,
    LEADER_WORKER_SET,
    LEASE,
    POD,
    REPLICA_SET,
    ROLE_SCALER,
    SERVICE,
    STATEFUL_SET,
    ObjectKind,
)
from outrider.operator.cluster.leadership import Term
from outrider.operator.naming import CLAIM_NAME

READ = ("list", "watch")
MADE = ("get", "create", "patch")
"""Verbs that make a child: one that is in no watch may have another owner, and is read first."""
MAX_AT_ONCE = 16
MAX_NAMED = 12
"""Missing permissions that one message names."""


class Forbidden(Exception):
    """Permissions are missing; the message names them."""


@dataclass(frozen=True, slots=True)
class Need:
    """One permission; `namespace` None: in all."""

    verb: str
    kind: ObjectKind
    namespace: str | None
    subresource: str = ""
    name: str = ""
    """Name of the only object that it covers."""

    @property
    def attributes(self) -> dict[str, str]:
        """Attributes of a SelfSubjectAccessReview."""
        return {
            "namespace": self.namespace or "",
            "verb": self.verb,
            "group": self.kind.group,
            "resource": self.kind.plural,
            "subresource": self.subresource,
            "name": self.name,
        }

    def __str__(self) -> str:
        resource = self.kind.plural + (f".{self.kind.group}" if self.kind.group else "")
        resource += f"/{self.subresource}" if self.subresource else ""
        resource += f" {self.name}" if self.name else ""
        return f"{self.verb} {resource} in {self.namespace or 'all namespaces'}"


def needs(
    namespaces: Sequence[str | None], term: Term, optional: Collection[ObjectKind] = ()
) -> Iterator[Need]:
    """Yield every permission of an operator that watches these namespaces; None: all.

    `optional` are the kinds of children that not every cluster serves.
    """
    yield Need("create", LEASE, term.namespace)
    for verb in ("get", "update"):
        yield Need(verb, LEASE, term.namespace, name=term.name)
    for namespace in namespaces:
        for kind in (SERVICE, POD, *CHILDREN, *optional):
            if kind not in GUARDED:
                yield from (Need(verb, kind, namespace) for verb in READ)
        yield Need("patch", POD, namespace)
        yield Need("get", REPLICA_SET, namespace)
        if LEADER_WORKER_SET in optional:
            yield Need("get", STATEFUL_SET, namespace)
        for kind in (*CHILDREN, *optional):
            deleted = () if kind in KEPT else ("delete",)
            yield from (Need(verb, kind, namespace) for verb in (*MADE, *deleted))
        yield from (Need(verb, LEASE, namespace, name=term.name) for verb in READ)
        yield Need("create", LEASE, namespace)
        yield from (Need(verb, LEASE, namespace, name=CLAIM_NAME) for verb in ("get", "update"))
        yield from (Need("patch", kind, namespace, "status") for kind in (SERVICE, ROLE_SCALER))
        yield Need("create", EVENT, namespace)


async def check(cluster: Cluster, wanted: Iterator[Need]) -> None:
    """Raise `Forbidden` if a permission is missing, `ClusterError` if there is no answer."""
    slots = asyncio.Semaphore(MAX_AT_ONCE)

    async def missing(need: Need) -> Need | None:
        async with slots:
            return None if await cluster.allows(need.attributes) else need

    found = await asyncio.gather(*(missing(need) for need in wanted))
    refused = [str(need) for need in found if need is not None]
    if refused:
        more = len(refused) - MAX_NAMED
        rest = f", and {more} more" if more > 0 else ""
        raise Forbidden(f"not allowed: {', '.join(refused[:MAX_NAMED])}{rest}")
