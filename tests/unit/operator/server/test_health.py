"""Which of kopf's watches are known to live."""

import asyncio

from outrider.operator.cluster.kinds import DEPLOYMENT, NETWORK_SERVICE, SERVICE
from outrider.operator.server.health import HealthServer, dead_watchers, watcher_names
from outrider.operator.server.metrics import OperatorMetrics

KINDS = (SERVICE, NETWORK_SERVICE, DEPLOYMENT)


def dead(running: frozenset[str], expected: frozenset[str]) -> str:
    """Return the problem while tasks of these names run."""

    async def body() -> str:
        tasks = [asyncio.create_task(asyncio.sleep(600), name=name) for name in running]
        said = dead_watchers(expected)
        for task in tasks:
            task.cancel()
        return said

    return asyncio.run(body())


def test_a_watch_is_known_by_kind_and_namespace() -> None:
    expected = watcher_names(KINDS, (None,))
    assert dead(expected, expected) == ""
    assert dead(expected - {"watcher for services.v1@None"}, expected) == (
        "nobody watches services.v1@None any more"
    )


def test_each_namespace_has_watches_of_its_own() -> None:
    expected = watcher_names(KINDS, ("a", "b"))
    assert len(expected) == 6
    assert dead(watcher_names(KINDS, ("a",)), expected) == (
        "nobody watches deployments.v1.apps@b, services.v1@b, "
        "speculativeservices.v1alpha1.outrider.dev@b any more"
    )


def test_a_follower_is_healthy_and_a_leader_that_hears_nothing_is_not() -> None:
    health = HealthServer(OperatorMetrics(), silence_seconds=10, heard=lambda: -1e9)
    assert health.problem() == ""
    health.leading = True
    assert health.problem().startswith("no watch has reported anything for")
