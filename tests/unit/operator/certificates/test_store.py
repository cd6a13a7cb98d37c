"""The Secret of the authorities: made once, renewed in place, never written over another's."""

import asyncio
import base64
import datetime
from typing import Any

import pytest

from outrider.operator.certificates.authority import Authorities
from outrider.operator.cluster.authority_store import AuthorityStore
from outrider.operator.cluster.client import CONFLICT, Cluster, ClusterError
from outrider.operator.cluster.kinds import ObjectKind

YEARS_AGO = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=600)


class OneSecret:
    """The API server, as far as one Secret goes."""

    def __init__(self, live: dict[str, Any] | None = None) -> None:
        self.live = live
        self.writes: list[str] = []

    async def get(self, kind: ObjectKind, namespace: str, name: str) -> dict[str, Any] | None:
        return self.live

    async def create(self, body: dict[str, Any]) -> None:
        self.writes.append("create")
        self.live = body

    async def apply(self, body: dict[str, Any]) -> None:
        assert self.live is not None
        if body["metadata"]["resourceVersion"] != self.live["metadata"]["resourceVersion"]:
            raise ClusterError("apply", CONFLICT, "it was written meanwhile")
        self.writes.append("apply")
        self.live = body


def store(cluster: OneSecret) -> AuthorityStore:
    typed: Any = cluster
    made: Cluster = typed
    return AuthorityStore(made, "system", "outrider-authorities")


def secret(authorities: Authorities) -> dict[str, Any]:
    data = {key: base64.b64encode(one).decode() for key, one in authorities.to_data().items()}
    return {"metadata": {"resourceVersion": "7"}, "data": data}


def test_it_is_made_once_and_read_by_the_next_process() -> None:
    cluster = OneSecret()
    first, second = store(cluster), store(cluster)
    asyncio.run(first.load())
    asyncio.run(second.load())
    assert cluster.writes == ["create"]
    assert first.current() == second.current()
    assert len(first.current().pairs) == 1
    assert cluster.live is not None
    assert "app.kubernetes.io/managed-by" not in cluster.live["metadata"]["labels"]


def test_an_authority_that_is_due_gets_a_follower_beside_it() -> None:
    old = Authorities().renewed(YEARS_AGO)
    cluster = OneSecret(secret(old))
    one = store(cluster)
    asyncio.run(one.load())
    assert cluster.writes == ["apply"]
    assert one.current().pairs[0] == old.pairs[0]
    assert len(one.current().pairs) == 2


def test_what_cannot_be_read_is_left_alone_and_said_without_its_content() -> None:
    planted = base64.b64encode(b"planted").decode()
    cluster = OneSecret({"metadata": {"resourceVersion": "7"}, "data": {"0.crt": planted}})
    with pytest.raises(
        ClusterError, match="system/outrider-authorities: it cannot be read"
    ) as said:
        asyncio.run(store(cluster).load())
    assert cluster.writes == []
    assert "planted" not in str(said.value)
    assert planted not in str(said.value)


def test_one_that_is_deleted_meanwhile_is_written_again_as_it_was() -> None:
    cluster = OneSecret()
    kept = store(cluster)
    asyncio.run(kept.load())
    before, cluster.live = kept.current(), None
    asyncio.run(kept.load())
    assert kept.current() == before
    assert cluster.writes == ["create", "create"]
    again = store(cluster)
    asyncio.run(again.load())
    assert again.current() == before
