"""Claims of namespaces: one operator holds one, another leaves its name and waits."""

import asyncio

import pytest

from outrider.operator.cluster.claims import CLAIM_SECONDS, LOOK_SECONDS, Claim, Claims
from outrider.operator.cluster.client import ClusterError
from outrider.operator.naming import RIVAL_ANNOTATION
from tests.unit.operator.small_leases import SmallLeases

SPACE = "models"


@pytest.fixture
def leases() -> SmallLeases:
    return SmallLeases()


async def look(claims: Claims) -> list[str]:
    """One round of `keep`; namespaces whose claims have changed."""
    changed: list[str] = []
    await claims.look(lambda: [SPACE], changed.append)
    return changed


def test_the_first_to_ask_holds_it_and_the_other_is_told_by_whom(leases: SmallLeases) -> None:
    async def scene() -> None:
        one, two = leases.operator("a/one"), leases.operator("b/two")
        assert await one.claim(SPACE) == Claim("a/one", True)
        assert await two.claim(SPACE) == Claim("a/one", False)
        assert not one.refused(SPACE)
        assert two.refused(SPACE)
        assert await look(one) == [SPACE], "a rival is a change"
        assert await one.claim(SPACE) == Claim("a/one", True, "b/two")

    asyncio.run(scene())


def test_a_claim_is_asked_for_once_and_not_by_each_pass(leases: SmallLeases) -> None:
    async def scene() -> None:
        one = leases.operator("a/one")
        for _ in range(5):
            await one.claim(SPACE)
        assert leases.writes == 1
        assert await look(one) == [], "a renewal is no change"
        assert leases.writes == 2

    asyncio.run(scene())


def test_another_process_of_the_same_operator_goes_on_at_once(leases: SmallLeases) -> None:
    async def scene() -> None:
        await leases.operator("a/one").claim(SPACE)
        assert await leases.operator("a/one").claim(SPACE) == Claim("a/one", True)

    asyncio.run(scene())


def test_a_claim_that_nobody_renews_is_taken_and_one_that_is_renewed_is_not(
    leases: SmallLeases,
) -> None:
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
        assert not two.refused(SPACE)
        assert await one.claim(SPACE) == Claim("b/two", False), "it asks again before it writes"
        assert one.refused(SPACE)

    asyncio.run(scene())


def test_a_claim_is_looked_at_as_soon_as_it_may_be_free(leases: SmallLeases) -> None:
    async def scene() -> None:
        one, two = leases.operator("a/one"), leases.operator("b/two")
        await one.claim(SPACE)
        leases.now += 10
        await two.claim(SPACE)
        first_read = leases.now
        leases.now += 25  # its first round of looks is due at any time
        while not await look(two):
            assert two.seconds_to_look <= LOOK_SECONDS
            leases.now += two.seconds_to_look
        assert leases.now == first_read + CLAIM_SECONDS
        assert two.seconds_to_look == LOOK_SECONDS

    asyncio.run(scene())


def test_a_claim_that_cannot_be_taken_is_not_looked_at_without_end(leases: SmallLeases) -> None:
    async def scene() -> None:
        await leases.operator("a/one").claim(SPACE)
        two = leases.operator("b/two")
        await two.claim(SPACE)
        leases.down = True
        leases.now += CLAIM_SECONDS
        await look(two)
        assert two.refused(SPACE)
        assert two.seconds_to_look == LOOK_SECONDS

    asyncio.run(scene())


def test_a_rival_that_is_gone_is_forgotten(leases: SmallLeases) -> None:
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


def test_a_claim_that_is_written_meanwhile_is_looked_at_again(leases: SmallLeases) -> None:
    async def scene() -> None:
        one = leases.operator("a/one")
        await one.claim(SPACE)
        leases.before_write = lambda: leases.touch(SPACE)
        assert await look(one) == []
        two = leases.operator("b/two")
        leases.before_write = lambda: leases.touch(SPACE)
        assert await two.claim(SPACE) == Claim("a/one", False)

    asyncio.run(scene())


def test_without_an_answer_a_claim_holds_for_its_time_and_no_longer(leases: SmallLeases) -> None:
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
        assert not one.refused(SPACE), "nobody knows"

    asyncio.run(scene())


def test_a_namespace_without_services_is_left_to_expire(leases: SmallLeases) -> None:
    async def scene() -> None:
        one = leases.operator("a/one")
        await one.claim(SPACE)
        await one.look(lambda: [], lambda _: None)
        assert leases.writes == 1
        await one.claim(SPACE)
        assert leases.writes == 2, "it is asked for anew"

    asyncio.run(scene())
