"""A full read finds out a watch that has missed something, and only such a one."""

import asyncio
from typing import Any

import pytest

from outrider.operator.cluster import resync
from outrider.operator.cluster.kinds import LEADER_WORKER_SET, POD, SERVICE, ObjectKind, ServiceKey
from outrider.operator.cluster.watch_handlers import Watches
from outrider.operator.server.health import HealthServer
from outrider.operator.server.metrics import OperatorMetrics
from outrider.operator.work_queue import WorkQueue

Versions = dict[str, str]


class Lists:
    """A cluster whose objects of a kind are listed so, the last list again and again, and a cache
    of them."""

    def __init__(self, cached: Versions, *lists: Versions, kind: ObjectKind = POD) -> None:
        self.cached = cached
        self.lists = list(lists)
        self.kind = kind
        self.listed = Watches(lambda key: None, [LEADER_WORKER_SET]).listed

    async def items(
        self, kind: ObjectKind, namespace: str | None, selector: str | None
    ) -> list[dict[str, Any]]:
        if kind is not self.kind:
            return []
        shown = self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]
        return [{"metadata": {"uid": u, "resourceVersion": v}} for u, v in shown.items()]

    def versions(self, kind: ObjectKind) -> Versions:
        return self.cached if kind is self.kind else {}


def missed(lists: Any) -> bool:
    """Return whether a full read of the pods finds something that the watch has missed."""
    return asyncio.run(resync.missed(lists, lists, POD, [None], 0.0))


@pytest.mark.parametrize(
    "lists",
    [
        Lists({"a": "1"}, {"a": "1"}),
        Lists({"a": "1"}, {"a": "2"}, {"a": "3"}),
        Lists({"a": "1"}, {"a": "1", "b": "1"}, {"a": "1"}),
        Lists({"a": "1", "b": "1"}, {"a": "1"}, {"a": "1", "b": "1"}),
    ],
    ids=["the same", "still changing", "came and went", "came"],
)
def test_a_watch_that_lags_is_trusted(lists: Lists) -> None:
    assert not missed(lists)


@pytest.mark.parametrize(
    "lists",
    [Lists({"a": "1"}, {"a": "2"}), Lists({}, {"a": "1"}), Lists({"a": "1", "b": "1"}, {"a": "1"})],
    ids=["an update", "a creation", "a deletion"],
)
def test_a_watch_that_missed_something_is_found_out(lists: Lists) -> None:
    assert missed(lists)


def test_services_are_read_more_often_than_all_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resync, "SERVICE_SECONDS", 0.0)
    asked: list[str] = []

    class Found(Exception):
        """It was found out."""

    class Watched(Lists):
        async def items(
            self, kind: ObjectKind, namespace: str | None, selector: str | None
        ) -> list[dict[str, Any]]:
            asked.append(kind.name)
            return await super().items(kind, namespace, selector)

    def stale(problem: str) -> None:
        raise Found(problem)

    monkeypatch.setattr(resync, "GRACE", 0.0)
    cluster = Watched({}, {"a": "1"})
    queue = WorkQueue[ServiceKey](lambda key: asyncio.sleep(0))
    with pytest.raises(Found, match="the watch of pods"):
        asyncio.run(resync.resync(cluster, cluster, queue, [None], stale))  # type: ignore[arg-type]
    assert asked[: resync.FULL_EVERY] == [SERVICE.name] * resync.FULL_EVERY
    assert asked[resync.FULL_EVERY] == POD.name


class Told(Exception):
    """Raised by the callback for a wrong watch."""


def tell(problem: str) -> None:
    raise Told(problem)


async def nothing(key: ServiceKey) -> None:
    """A pass."""


@pytest.mark.parametrize("kind", [POD, LEADER_WORKER_SET], ids=lambda kind: str(kind.name))
def test_what_only_some_clusters_serve_is_read_too(
    kind: ObjectKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SERVICE_SECONDS", "GRACE"):
        monkeypatch.setattr(resync, name, 0.0)
    lists: Any = Lists({}, {"a": "1"}, kind=kind)
    queue = WorkQueue[ServiceKey](nothing)
    with pytest.raises(Told, match=f"the watch of {kind.plural} has missed something"):
        asyncio.run(asyncio.wait_for(resync.resync(lists, lists, queue, [None], tell), 60))


def test_an_operator_that_knows_that_it_is_wrong_is_not_healthy() -> None:
    health = HealthServer(OperatorMetrics(), leading=True)
    assert health.problem() == ""
    health.distrust("the watch of pods has missed something")
    assert health.problem() == "the watch of pods has missed something"
