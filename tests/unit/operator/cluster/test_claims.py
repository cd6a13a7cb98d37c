"""Claims of namespaces: one operator holds one, another leaves its name and waits."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from outrider.operator.cluster.claims import CLAIM_SECONDS, LOOK_SECONDS, Claim, Claims
from outrider.operator.cluster.client import ClusterError
from outrider.operator.naming import CLAIM_NAME, RIVAL_ANNOTATION

SPACE = "models"


class Leases:
    """A cluster that holds one Lease a namespace, and a clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.stored: dict[str, dict[str, Any]] = {}
        self.writes = 0
        self.before_write: Callable[[], None] = lambda: None
        self.down = False

    async def get(self, kind: Any, namespace: str, name: str) -> dict[str, Any] | None:
        assert name == CLAIM_NAME
        if self.down:
            raise ClusterError("get", 0, "no answer")
        return self.stored.get(namespace)

    async def create(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        self.before_write()
        if wanted["metadata"]["namespace"] in self.stored:
            raise ClusterError("post", 409, "there is one")
        return self._write(wanted)

    async def replace(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        self.before_write()
        meta = wanted["metadata"]
        if meta["resourceVersion"] != self.version(meta["namespace"]):
            raise ClusterError("put", 409, "it was written meanwhile")
        return self._write(wanted)

    def version(self, namespace: str) -> str:
        return str(self.stored[namespace]["metadata"]["resourceVersion"])

    def touch(self) -> None:
        """Somebody else writes it, once."""
        self.before_write = lambda: None
        self._write(self.stored[SPACE])

    def _write(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        self.writes += 1
        meta = {**wanted["metadata"], "resourceVersion": str(self.writes)}
        self.stored[meta["namespace"]] = {**wanted, "metadata": meta}
        return self.stored[meta["namespace"]]

    def operator(self, name: str) -> Claims:
        return Claims(self, name, lambda: self.now)  # type: ignore[arg-type] # a fake


@pytest.fixture
def leases() -> Leases:
    return Leases()


async def look(claims: Claims) -> list[str]:
    """One round of `keep`; namespaces whose claims have changed."""
    changed: list[str] = []
    await claims.look(lambda: [SPACE], changed.append)
    return changed


def test_the_first_to_ask_holds_it_and_the_other_is_told_by_whom(leases: Leases) -> None:
    async def scene() -> None:
        one, two = leases.operator("a/one"), leases.operator("b/two")
        assert await one.claim(SPACE) == Claim("a/one", True)
        assert await two.claim(SPACE) == Claim("a/one", False)
        assert one.holds(SPACE)
        assert not two.holds(SPACE)
        assert await look(one) == [SPACE], "a rival is a change"
        assert await one.claim(SPACE) == Claim("a/one", True, "b/two")

    asyncio.run(scene())


def test_a_claim_is_asked_for_once_and_not_by_each_pass(leases: Leases) -> None:
    async def scene() -> None:
        one = leases.operator("a/one")
        for _ in range(5):
            await one.claim(SPACE)
        assert leases.writes == 1
        assert await look(one) == [], "a renewal is no change"
        assert leases.writes == 2

    asyncio.run(scene())


def test_another_process_of_the_same_operator_goes_on_at_once(leases: Leases) -> None:
    async def scene() -> None:
        await leases.operator("a/one").claim(SPACE)
        assert await leases.operator("a/one").claim(SPACE) == Claim("a/one", True)

    asyncio.run(scene())


def test_a_claim_that_nobody_renews_is_taken_and_one_that_is_renewed_is_not(leases: Leases) -> None:
    async def scene() -> None:
        one, two = leases.operator("a/one"), leases.operator("b/two")
        await one.claim(SPACE)
        await two.claim(SPACE)
        for _ in range(6):
            leases.now += LOOK_SECONDS
            await look(one)
            assert await look(two) == []
        for _ in range(3):
            leases.now += LOOK_SECONDS
            changed = await look(two)
        assert changed == [SPACE]
        assert two.holds(SPACE)
        assert not one.holds(SPACE), "by its own clock, without asking"
        assert await one.claim(SPACE) == Claim("b/two", False), "it asks again before it writes"

    asyncio.run(scene())


def test_a_rival_that_is_gone_is_forgotten(leases: Leases) -> None:
    async def scene() -> None:
        one, two = leases.operator("a/one"), leases.operator("b/two")
        await one.claim(SPACE)
        await two.claim(SPACE)
        await look(one)
        assert RIVAL_ANNOTATION not in leases.stored[SPACE]["metadata"]["annotations"]
        for _ in range(int(CLAIM_SECONDS / LOOK_SECONDS)):
            leases.now += LOOK_SECONDS
            changed = await look(one)
        assert changed == [SPACE]
        assert await one.claim(SPACE) == Claim("a/one", True)

    asyncio.run(scene())


def test_a_claim_that_is_written_meanwhile_is_looked_at_again(leases: Leases) -> None:
    async def scene() -> None:
        one = leases.operator("a/one")
        await one.claim(SPACE)
        leases.before_write = leases.touch
        await look(one)
        assert one.holds(SPACE)
        two = leases.operator("b/two")
        leases.before_write = leases.touch
        assert await two.claim(SPACE) == Claim("a/one", False)

    asyncio.run(scene())


def test_without_an_answer_a_claim_holds_for_its_time_and_no_longer(leases: Leases) -> None:
    async def scene() -> None:
        one = leases.operator("a/one")
        await one.claim(SPACE)
        leases.down = True
        leases.now += LOOK_SECONDS
        await look(one)
        assert (await one.claim(SPACE)).is_ours
        leases.now += CLAIM_SECONDS
        with pytest.raises(ClusterError):
            await one.claim(SPACE)
        assert not one.holds(SPACE)

    asyncio.run(scene())


def test_a_namespace_without_services_is_left_to_expire(leases: Leases) -> None:
    async def scene() -> None:
        one = leases.operator("a/one")
        await one.claim(SPACE)
        await one.look(lambda: [], lambda _: None)
        assert not one.holds(SPACE)
        assert leases.writes == 1

    asyncio.run(scene())
