"""Which of kopf's watches are known to live."""

import asyncio
import logging

import pytest

from outrider.operator.server.health import HealthServer, ended, watching_tasks
from outrider.operator.server.metrics import OperatorMetrics


def test_a_watch_that_ends_is_named_and_other_tasks_may_end() -> None:
    async def scene() -> None:
        names = ("watcher for pods.v1@a", "watcher for services.v1@a", "worker for pods.v1@a")
        tasks = {name: asyncio.create_task(asyncio.sleep(600), name=name) for name in names}
        watching = watching_tasks()
        assert ended(watching) == ""
        for name in names[1:]:
            tasks[name].cancel()
        await asyncio.wait([tasks[name] for name in names[1:]])
        assert ended(watching) == "nobody watches services.v1@a any more"
        tasks[names[0]].cancel()

    asyncio.run(scene())


def test_other_names_of_kopfs_tasks_make_nobody_unhealthy(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene() -> None:
        with caplog.at_level(logging.WARNING):
            assert ended(watching_tasks()) == ""

    asyncio.run(scene())
    assert "cannot be told apart" in caplog.text


def test_a_follower_is_healthy_and_a_leader_that_hears_nothing_is_not() -> None:
    health = HealthServer(OperatorMetrics(), silence_seconds=10, heard=lambda: -1e9)
    assert health.problem() == ""
    health.leading = True
    assert health.problem().startswith("no watch has reported anything for")
