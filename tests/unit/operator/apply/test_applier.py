"""In which order the children of a service are made, and what comes of those that are refused."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from outrider.operator.apply.applier import Applier, ApplyResult, whose
from outrider.operator.cluster.client import ClusterError
from outrider.operator.cluster.differences import AppliedCache
from outrider.operator.cluster.interfaces import Object
from outrider.operator.cluster.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    NETWORK_SERVICE,
    SECRET,
    SERVICE_ACCOUNT,
    ObjectKind,
)
from outrider.operator.cluster.own_writes import OwnWrites
from outrider.operator.manifests.child import child
from outrider.operator.naming import FIELD_MANAGER
from outrider.operator.observed.owner import Owner
from outrider.operator.observed.service import Observed
from tests.unit.operator.small_cluster import SmallCluster

OWNER = Owner("default", "chat", "uid-0")
ROLES = ("draft", "target")
MAPS = {"a": "draft", "b": "target", "intent": ""}


class Together(SmallCluster):
    """Answers what it is asked once so many have asked."""

    def __init__(self, together: int) -> None:
        super().__init__()
        self._together = asyncio.Barrier(together)
        self.late: dict[str, int] = {}
        """Turns of the loop that the apply of a name takes longer."""
        self.full = ""
        """Name of an object for which there is no quota."""

    async def get(self, kind: ObjectKind, namespace: str, name: str) -> Object | None:
        if kind is CONFIG_MAP:
            await self._together.wait()
        return await super().get(kind, namespace, name)

    async def apply(self, wanted: Mapping[str, Any], manager: str = FIELD_MANAGER) -> Object:
        if wanted["metadata"]["name"] == self.full:
            raise ClusterError("apply", 403, "exceeded quota")
        for _ in range(self.late.get(wanted["metadata"]["name"], 0)):
            await asyncio.sleep(0)
        return await super().apply(wanted, manager)


def wanted() -> list[Object]:
    """Two roles' workloads, of whose settings each has one; the intent is both's."""
    maps = [child(CONFIG_MAP, OWNER, name, role, data={}) for name, role in MAPS.items()]
    return [*(child(DEPLOYMENT, OWNER, f"{r}s", r, spec={}) for r in ROLES), *maps]


def observed(*children: Object) -> Observed:
    found = {(one["kind"], one["metadata"]["name"]): one for one in children}
    return Observed(OWNER, 1, {}, found, ())


async def make(writer: SmallCluster, *present: Object, more: Sequence[Object] = ()) -> ApplyResult:
    async with asyncio.timeout(20):
        return await Applier(writer, observed(*present), AppliedCache(), OwnWrites()).apply(
            [*wanted(), *more], {}
        )


def test_what_pods_start_from_is_made_at_once_and_before_what_makes_pods() -> None:
    async def scene() -> None:
        cluster = Together(len(MAPS))
        cluster.late = {"a": 9, "b": 5}
        assert await make(cluster) == ApplyResult()
        expected = ["apply ConfigMap intent", "apply ConfigMap b", "apply ConfigMap a"]
        assert cluster.writes == [
            *expected,
            "apply Deployment drafts",
            "apply Deployment targets",
        ]

    asyncio.run(scene())


def test_refusals_are_told_in_the_order_of_what_is_wanted() -> None:
    async def scene() -> None:
        cluster = Together(len(MAPS))
        cluster.late = {"a": 9, "b": 5}
        cluster.refuse = lambda verb, kind: (
            ClusterError("apply", 403, "no") if verb == "apply" and kind == "ConfigMap" else None
        )
        result = await make(cluster)
        assert list(result.refused) == [("ConfigMap", name) for name in MAPS]
        assert cluster.writes == [], "no pod could start from them"

    asyncio.run(scene())


def test_nothing_is_made_of_or_deleted_after_what_the_server_could_not_answer() -> None:
    async def scene() -> None:
        cluster = Together(len(MAPS))
        unwanted = cluster.put({**child(NETWORK_SERVICE, OWNER, "old", spec={})})
        cluster.refuse = lambda verb, kind: (
            ClusterError("apply", 500, "later") if verb == "apply" and kind == "ConfigMap" else None
        )
        result = await make(cluster, unwanted)
        assert list(result.failed) == [("ConfigMap", name) for name in MAPS]
        assert {kind for kind, _ in result.waiting} == {"Deployment"}
        assert not result.refused
        assert cluster.writes == []

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("lacking", "made_all_the_same"),
    [("a", ["targets"]), ("b", ["drafts"]), ("intent", [])],
)
def test_pods_that_would_start_without_a_map_are_not_made(
    lacking: str, made_all_the_same: list[str]
) -> None:
    async def scene() -> None:
        cluster = Together(len(MAPS))
        cluster.full = lacking
        result = await make(cluster)
        assert result.refused == {("ConfigMap", lacking): "exceeded quota"}
        expected = [f"apply Deployment {name}" for name in made_all_the_same]
        assert [one for one in cluster.writes if "Deployment" in one] == expected
        held = [("Deployment", f"{role}s") for role in ROLES if f"{role}s" not in made_all_the_same]
        assert result.waiting == dict.fromkeys(held, ("ConfigMap", lacking))
        assert not any(result.is_applied(key) for key in held)

    asyncio.run(scene())


def test_nothing_is_deleted_while_a_workload_waits() -> None:
    async def scene() -> None:
        cluster = Together(len(MAPS))
        cluster.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta("a"), "data": {}})
        unwanted = cluster.put({**child(NETWORK_SERVICE, OWNER, "old", spec={})})
        result = await make(cluster, unwanted)
        assert result.waiting == {("Deployment", "drafts"): ("ConfigMap", "a")}
        assert "delete Service old" not in cluster.writes

    asyncio.run(scene())


def test_an_object_of_somebody_else_is_never_written() -> None:
    async def scene() -> None:
        cluster = Together(len(MAPS))
        cluster.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta("b"), "data": {}})
        result = await make(cluster)
        assert result.foreign == {("ConfigMap", "b"): "somebody else"}
        assert "apply ConfigMap b" not in cluster.writes

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("owners", "expected"),
    [
        ([], "somebody else"),
        ([("SpeculativeService", "chat", True)], "SpeculativeService chat"),
        ([("Job", "a", False), ("Deployment", "b", True)], "Deployment b"),
        ([("Job", "a", False)], "Job a"),
    ],
)
def test_whose_an_object_is_is_said_as_far_as_it_tells(
    owners: list[tuple[str, str, bool]], expected: str
) -> None:
    named = [{"kind": k, "name": n, "uid": "u", "controller": c} for k, n, c in owners]
    assert whose({"metadata": {"ownerReferences": named}}) == expected
    assert whose({"metadata": {}}) == "somebody else"


@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize(
    ("mine", "made_all_the_same"),
    [
        (child(SERVICE_ACCOUNT, OWNER, "chat"), []),
        (child(SECRET, OWNER, "chat-draft-certificate", "draft"), ["targets"]),
    ],
)
def test_no_pod_runs_as_an_account_or_with_a_secret_of_somebody_else(
    labelled: bool, mine: Object, made_all_the_same: list[str]
) -> None:
    async def scene() -> None:
        cluster, key = Together(len(MAPS)), (mine["kind"], mine["metadata"]["name"])
        labels = mine["metadata"]["labels"] if labelled else {}
        theirs = {**mine, "metadata": {**meta(key[1]), "labels": labels}}
        live = cluster.put(theirs)
        result = await make(cluster, *([live] if labelled else []), more=[mine])
        assert list(result.foreign) == [key]
        expected = [f"apply Deployment {name}" for name in made_all_the_same]
        assert [one for one in cluster.writes if "Deployment" in one] == expected
        assert set(result.waiting.values()) == {key}

    asyncio.run(scene())


def meta(name: str) -> Object:
    return {"name": name, "namespace": OWNER.namespace}
