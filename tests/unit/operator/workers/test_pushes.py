"""Pushes of policies: one at a time for each target, the newest in the end."""

import asyncio
from collections.abc import Callable

import grpc
import pytest

from outrider.client.errors import ClientError
from outrider.contract.settings import PolicySettings, Role
from outrider.contract.state import State
from outrider.operator.observed.pods import Pod
from outrider.operator.workers.pushes import PolicyPushes

Result = State | ClientError


def pod(uid: str) -> Pod:
    return Pod(uid, uid, Role.TARGET, "r", "10.0.0.1", True, False, (), "")


def policy(version: int) -> PolicySettings:
    return PolicySettings(version=version)


class Targets:
    """Refuse every policy once they are let go, so that no state has to be made up."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.told: list[tuple[str, int]] = []
        self.results: asyncio.Queue[str] = asyncio.Queue()

    async def push(self, pod: Pod, policy: PolicySettings) -> State:
        self.told.append((pod.uid, policy.version))
        await self.go.wait()
        raise ClientError(f"{pod.uid} {policy.version}", grpc.StatusCode.UNAVAILABLE)

    def record(self, result: Result) -> None:
        self.results.put_nowait(str(result))

    async def heard(self, count: int) -> list[str]:
        return [await self.results.get() for _ in range(count)]


def run(scene: "Callable[[Targets, PolicyPushes], object]") -> None:
    async def main() -> None:
        targets = Targets()
        pushes = PolicyPushes(targets.push)
        async with asyncio.timeout(20):
            await scene(targets, pushes)  # type: ignore[misc]  # every scene is a coroutine
        await pushes.close()

    asyncio.run(main())


def test_a_target_that_hangs_holds_up_no_other() -> None:
    async def scene(targets: Targets, pushes: PolicyPushes) -> None:
        for uid in ("a", "b"):
            pushes.begin(pod(uid), policy(1), targets.record)
        await asyncio.sleep(0)
        assert targets.told == [("a", 1), ("b", 1)]
        targets.go.set()
        assert sorted(await targets.heard(2)) == ["a 1", "b 1"]

    run(scene)


def test_of_the_policies_that_follow_the_newest_alone_is_told() -> None:
    async def scene(targets: Targets, pushes: PolicyPushes) -> None:
        pushes.begin(pod("a"), policy(1), targets.record)
        await asyncio.sleep(0)
        for version in (2, 3, 4):
            pushes.begin(pod("a"), policy(version), targets.record)
        targets.go.set()
        assert await targets.heard(2) == ["a 1", "a 4"]
        assert targets.told == [("a", 1), ("a", 4)]

    run(scene)


def test_a_policy_that_is_being_told_is_not_told_again() -> None:
    async def scene(targets: Targets, pushes: PolicyPushes) -> None:
        pushes.begin(pod("a"), policy(1), targets.record)
        await asyncio.sleep(0)
        pushes.begin(pod("a"), policy(1), targets.record)
        targets.go.set()
        assert await targets.heard(1) == ["a 1"]
        pushes.begin(pod("a"), policy(1), targets.record)
        assert await targets.heard(1) == ["a 1"], "after it has failed, it is"

    run(scene)


def test_what_nobody_expected_is_logged_and_ends_no_later_push(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(targets: Targets, pushes: PolicyPushes) -> None:
        targets.go.set()

        def broken(result: Result) -> None:
            raise ValueError("what is this?")

        pushes.begin(pod("a"), policy(1), broken)
        await asyncio.sleep(0)
        pushes.begin(pod("a"), policy(2), targets.record)
        assert await targets.heard(1) == ["a 2"]

    run(scene)
    assert "what is this?" in caplog.text
