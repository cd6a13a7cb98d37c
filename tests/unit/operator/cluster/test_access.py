"""Which permissions are asked for, and what is said of those that are missing."""

import asyncio
from collections.abc import Mapping

import pytest

from outrider.operator.cluster.access import Forbidden, Need, check, needs
from outrider.operator.cluster.kinds import (
    CHILDREN,
    EVENT,
    LEADER_WORKER_SET,
    LEASE,
    POD,
    POD_MONITOR,
    REPLICA_SET,
    ROLE_SCALER,
    SERVICE,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
)
from outrider.operator.cluster.leadership import Term

TERM = Term("system", "operator", "me")
ALL = {"get", "list", "watch", "create", "patch", "delete"}


class Server:
    """Allows all but what is named."""

    def __init__(self, *refused: tuple[str, str]) -> None:
        self.refused = refused

    async def allows(self, attributes: Mapping[str, str]) -> bool:
        return (attributes["verb"], attributes["resource"]) not in self.refused


def test_every_kind_of_child_is_watched_and_written_in_every_namespace() -> None:
    wanted = set(needs(("a", "b"), TERM, (POD_MONITOR,)))
    for namespace in ("a", "b"):
        for kind in (*CHILDREN, POD_MONITOR):
            own = {n for n in wanted if (n.kind, n.namespace) == (kind, namespace)}
            verbs = {n.verb for n in own if not n.subresource}
            less = {SERVICE_ACCOUNT: ALL - {"delete"}}
            assert verbs == less.get(kind, ALL)
        for kind in (SERVICE, ROLE_SCALER):
            assert Need("patch", kind, namespace, "status") in wanted
        assert Need("create", EVENT, namespace) in wanted
        assert Need("delete", POD, namespace) not in wanted
    assert {n.verb for n in wanted if n.namespace == "system"} == {"get", "create", "update"}
    assert all(n.kind is LEASE for n in wanted if n.namespace == "system")


def test_what_controls_pods_is_read_where_it_may_be_there() -> None:
    plain, sets = set(needs(("a",), TERM)), set(needs(("a",), TERM, (LEADER_WORKER_SET,)))
    assert Need("get", REPLICA_SET, "a") in plain
    assert Need("get", STATEFUL_SET, "a") not in plain
    assert Need("get", STATEFUL_SET, "a") in sets


def test_what_is_missing_is_named() -> None:
    server = Server(("watch", "pods"), ("patch", "deployments"))
    with pytest.raises(Forbidden) as refused:
        asyncio.run(check(server, needs((None,), TERM)))  # type: ignore[arg-type]
    assert str(refused.value) == (
        "not allowed: watch pods in all namespaces, patch deployments.apps in all namespaces"
    )


def test_a_message_names_only_so_many() -> None:
    server = Server(*(("watch", kind.plural) for kind in CHILDREN), ("list", "pods"))
    with pytest.raises(Forbidden, match=r", and 6 more$"):
        asyncio.run(check(server, needs(("a", "b"), TERM)))  # type: ignore[arg-type]
