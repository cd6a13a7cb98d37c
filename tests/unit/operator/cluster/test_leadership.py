"""The Lease: its maker holds it, a late candidate is refused, and it is given back."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord

from outrider.operator.cluster.client import ClusterError
from outrider.operator.cluster.leadership import LeaseLock, Term, lead

TERM = Term("default", "lease", "me")
TIME = "2026-01-02T03:04:05.000000Z"


async def nothing() -> None:
    pass


class Leases:
    """A cluster that holds one Lease and knows versions."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.down = False
        self.after_get: Callable[[], Awaitable[None]] = nothing

    async def get(self, kind: Any, namespace: str, name: str) -> dict[str, Any] | None:
        if self.down:
            raise ClusterError("get", 0, "no answer")
        found = self.lease
        await self.after_get()
        return found

    async def create(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        if self.lease is not None:
            raise ClusterError("post", 409, "there is one")
        return self._write(wanted, 1)

    async def replace(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        assert self.lease is not None
        version = int(self.lease["metadata"]["resourceVersion"])
        if wanted["metadata"].get("resourceVersion") != str(version):
            raise ClusterError("put", 409, "it was written meanwhile")
        return self._write(wanted, version + 1)

    def _write(self, wanted: Mapping[str, Any], version: int) -> dict[str, Any]:
        meta = {**wanted["metadata"], "resourceVersion": str(version)}
        self.lease = {**wanted, "metadata": meta}
        return self.lease


def lock(leases: Leases, identity: str = "me") -> LeaseLock:
    return LeaseLock(leases, Term("default", "lease", identity))  # type: ignore[arg-type] # a fake


def record(identity: str = "me") -> LeaderElectionRecord:
    return LeaderElectionRecord(identity, "15", TIME, TIME)


def test_a_lease_is_made_read_and_renewed() -> None:
    async def scene() -> None:
        mine = lock(leases := Leases())
        there, why = await mine.get("lease", "default")
        assert not there
        assert why.status == 404
        assert await mine.create("lease", "default", record())
        there, found = await mine.get("lease", "default")
        assert there
        assert found.holder_identity == "me"
        assert await mine.update("lease", "default", record())
        assert leases.lease is not None
        assert leases.lease["spec"]["renewTime"] == TIME
        assert leases.lease["spec"]["leaseDurationSeconds"] == 15

    asyncio.run(scene())


def test_whoever_read_an_older_lease_does_not_get_it() -> None:
    async def scene() -> None:
        leases = Leases()
        mine, other = lock(leases), lock(leases, "other")
        assert await mine.create("lease", "default", record())
        assert not await other.create("lease", "default", record("other"))
        await mine.get("lease", "default")
        await other.get("lease", "default")
        assert await other.update("lease", "default", record("other"))
        assert not await mine.update("lease", "default", record())

    asyncio.run(scene())


def test_a_lease_counts_how_often_it_has_changed_hands() -> None:
    async def scene() -> None:
        leases = Leases()
        mine, other = lock(leases), lock(leases, "other")

        def changes() -> int:
            assert leases.lease is not None
            return int(leases.lease["spec"]["leaseTransitions"])

        await mine.create("lease", "default", record())
        await mine.get("lease", "default")
        await mine.update("lease", "default", record())
        assert changes() == 0, "a renewal is none"
        await other.get("lease", "default")
        await other.update("lease", "default", record("other"))
        assert changes() == 1
        await other.release()
        assert changes() == 1, "what is given back has no new holder yet"
        await mine.get("lease", "default")
        await mine.update("lease", "default", record())
        assert changes() == 2

    asyncio.run(scene())


def test_no_answer_is_no_lease() -> None:
    async def scene() -> None:
        mine = lock(leases := Leases())
        leases.down = True
        there, why = await mine.get("lease", "default")
        assert not there
        assert "no answer" in str(why)

    asyncio.run(scene())


def test_only_the_holder_gives_it_back() -> None:
    async def scene() -> None:
        leases = Leases()
        mine, other = lock(leases), lock(leases, "other")
        await mine.create("lease", "default", record())
        await other.release()
        assert leases.lease is not None
        assert leases.lease["spec"]["holderIdentity"] == "me"
        await mine.release()
        assert "holderIdentity" not in leases.lease["spec"]
        there, found = await other.get("lease", "default")
        assert there
        assert found is None

    asyncio.run(scene())


def test_a_renewal_that_comes_between_does_not_keep_it() -> None:
    async def scene() -> None:
        leases = Leases()
        mine = lock(leases)
        await mine.create("lease", "default", record())
        await mine.get("lease", "default")

        async def renew() -> None:
            leases.after_get = nothing
            assert await mine.update("lease", "default", record())

        leases.after_get = renew
        await mine.release()
        assert leases.lease is not None
        assert "holderIdentity" not in leases.lease["spec"]

    asyncio.run(scene())


def test_a_renewal_under_way_ends_before_the_lease_is_given_back() -> None:
    leases = Leases()
    ended: list[bool] = []

    async def work() -> None:
        renews, never = asyncio.Event(), asyncio.Event()

        async def hang() -> None:
            leases.after_get = nothing
            renews.set()
            try:
                await never.wait()
            finally:
                assert leases.lease is not None
                ended.append("holderIdentity" in leases.lease["spec"])

        leases.after_get = hang
        await renews.wait()

    term = Term("default", "lease", "me", lease_seconds=8)
    assert asyncio.run(lead(leases, term, work)) is True  # type: ignore[arg-type] # a fake
    assert ended == [True]
    assert leases.lease is not None
    assert "holderIdentity" not in leases.lease["spec"]


def test_the_leader_works_and_then_gives_the_lease_back() -> None:
    leases = Leases()
    held: list[str] = []

    async def work() -> None:
        assert leases.lease is not None
        held.append(leases.lease["spec"]["holderIdentity"])

    assert asyncio.run(lead(leases, TERM, work)) is True  # type: ignore[arg-type] # a fake
    assert held == ["me"]
    assert leases.lease is not None
    assert "holderIdentity" not in leases.lease["spec"]


def test_what_the_work_raises_is_the_caller_s() -> None:
    async def work() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        asyncio.run(lead(Leases(), TERM, work))  # type: ignore[arg-type] # a fake
