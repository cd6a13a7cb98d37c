"""Advice on what is probably not meant; the full read that finds what watches missed."""

from typing import Any

import pytest

from outrider.operator.admission import advice
from outrider.operator.spec import load

HEAD = "apiVersion: outrider.dev/v1alpha1\nkind: SpeculativeService\nmetadata: {name: chat}\n"
CALM = "resources: {requests: {memory: 1Gi}}"
ONE_BY_ONE = "update: {maxUnavailable: 1, maxSurge: 0}"
ONCE = "cache: {type: PersistentVolumeClaim, size: 1Gi, accessMode: ReadWriteOnce}"


def given(target: str) -> list[str]:
    text = f"{HEAD}spec: {{target: {{model: {{uri: 'hf://o/large'}}, {target}}}}}"
    return list(advice.on(load(text)))


def same_pod(target: str, draft: str) -> list[str]:
    small = f"{{model: {{uri: 'hf://o/small'}}, placement: SamePod, {CALM}{draft}}}"
    large = f"{{model: {{uri: 'hf://o/large'}}, {CALM}{target}}}"
    return list(advice.on(load(f"{HEAD}spec: {{target: {large}, draft: {small}}}")))


@pytest.mark.parametrize(
    ("target", "draft", "words"),
    [
        ("", "", []),
        ("", ", engine: {device: GPU}", []),
        ("", ", parallelism: {tensor: 2}", ["spec.draft.engine.device: Auto, and"]),
        (
            "",
            ", scaling: {mode: Managed, maxReplicas: 2}",
            ["spec.draft.scaling: does nothing where placement is Colocated or SamePod"],
        ),
        (
            ", podTemplate: {spec: {containers: [{name: draft, image: other}]}}",
            "",
            ["spec.target.podTemplate: image of the container draft replaces"],
        ),
    ],
)
def test_advice_on_a_draft_in_its_targets_pod(target: str, draft: str, words: list[str]) -> None:
    found = same_pod(target, draft)
    assert len(found) == len(words)
    for part, sentence in zip(words, found, strict=True):
        assert part in sentence


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (CALM, []),
        ("replicas: 1", ["spec.target.resources: no memory is asked for"]),
        (f"{CALM}, parallelism: {{tensor: 2, nodes: 2}}", []),
        (f"{CALM}, parallelism: {{pipeline: 2}}, pipeline: {{dtype: fp16}}", []),
        (
            f"{CALM}, pipeline: {{dtype: fp16}}",
            ["spec.target.pipeline: does nothing where parallelism.pipeline is 1"],
        ),
        (
            f"{ONE_BY_ONE}, resources: {{limits: {{memory: 1Gi, nvidia.com/gpu: 4}}}},"
            " parallelism: {tensor: 4, nodes: 2}",
            ["resources.limits: another number of nvidia.com/gpu than ranks a pod"],
        ),
        (
            f"{ONE_BY_ONE}, resources: {{limits: {{memory: 1Gi, nvidia.com/gpu: 2}}}}",
            ["resources.limits: another number of nvidia.com/gpu than ranks a pod"],
        ),
        (f"{CALM}, {ONE_BY_ONE}, engine: {{device: GPU}}", []),
        (f"{CALM}, update: {{strategy: Recreate}}, engine: {{device: GPU}}", []),
        (
            f"{CALM}, engine: {{device: GPU}}",
            ["update.maxSurge: each rollout needs the GPUs of more replicas"],
        ),
        (
            "resources: {limits: {memory: 1Gi, nvidia.com/mig-1g.10gb: 1}}",
            ["update.maxSurge: each rollout needs the GPUs of more replicas"],
        ),
        *(
            (
                f"resources: {{limits: {{memory: 1Gi, {device}: 1}}}}",
                ["resources.limits: workers compute on processors and on nvidia.com/gpu"],
            )
            for device in ("amd.com/gpu", "gpu.intel.com/i915", "google.com/tpu")
        ),
        (
            f"{CALM}, parallelism: {{tensor: 4, nodes: 2}}",
            ["engine.device: Auto, and resources.limits asks for no nvidia.com/gpu: several"],
        ),
        (f"{CALM}, parallelism: {{tensor: 2}}, engine: {{device: CPU}}", []),
        (f"{CALM}, parallelism: {{tensor: 2, pipeline: 2}}", []),
        (
            f"{CALM}, {ONE_BY_ONE}, parallelism: {{tensor: 2}}, podTemplate: {{spec: {{containers:"
            " [{name: main, resources: {claims: [{name: two-gpus}]}}]}}",
            ["podTemplate: resources of the container main replaces"],
        ),
        (
            f"{ONE_BY_ONE}, resources: {{limits: {{memory: 1Gi, nvidia.com/gpu: 1}}}}"
            ", parallelism: {pipeline: 2}",
            ["resources.limits: asks for GPUs, though stages compute on processors"],
        ),
        (
            f"{ONE_BY_ONE}, resources: {{limits: {{memory: 1Gi, nvidia.com/gpu: 1}}}}"
            ", engine: {device: CPU}",
            ["engine.device: CPU, though resources.limits asks for GPUs"],
        ),
        (
            f"{ONE_BY_ONE}, resources: {{limits: {{memory: 1Gi, nvidia.com/mig-1g.10gb: 1}}}}"
            ", engine: {device: GPU}",
            [],
        ),
        (f"{ONE_BY_ONE}, resources: {{limits: {{memory: 1Gi, nvidia.com/gpu: 1}}}}", []),
        (f"{CALM}, {ONCE}, update: {{strategy: Recreate}}", []),
        (f"{CALM}, {ONCE}, {ONE_BY_ONE}", []),
        (
            f"{CALM}, {ONCE}",
            ["cache.accessMode: not ReadWriteMany: new pods may wait"],
        ),
        (
            f"{CALM}, {ONCE}, replicas: 2, update: {{strategy: Recreate}}",
            ["cache.accessMode: not ReadWriteMany, though there may be several pods"],
        ),
        (
            f"{CALM}, {ONCE}, scaling: {{mode: External}}",
            ["cache.accessMode: not ReadWriteMany, though there may be several pods"],
        ),
        (
            f"{CALM}, podTemplate: {{metadata: {{labels: {{outrider.dev/role: x, mine: y}}}}}}",
            ["podTemplate.metadata.labels: has a key of the operator's"],
        ),
        (
            f"{CALM}, podTemplate: {{spec: {{containers: [{{name: main, args: [a]}}, other]}}}}",
            ["podTemplate: args of the container main"],
        ),
        (f"{CALM}, podTemplate: {{spec: {{containers: 5}}}}", []),
        (
            f"{CALM}, requests: {{maxSeconds: 60}}, "
            "podTemplate: {spec: {terminationGracePeriodSeconds: 30}}",
            ["terminationGracePeriodSeconds: is less than requests.maxSeconds and 30 more"],
        ),
        (f"{CALM}, podTemplate: {{spec: {{terminationGracePeriodSeconds: 3600}}}}", []),
        (f"{CALM}, podTemplate: {{spec: {{x: {'y' * (33 << 10)}}}}}", ["more than 32768"]),
    ],
)
def test_advice_names_the_field(target: str, words: list[str]) -> None:
    found = given(target)
    assert len(found) == len(words)
    for part, sentence in zip(words, found, strict=True):
        assert part in sentence
        assert sentence.startswith("spec.target.")


def body(name: str, uid: str) -> dict[str, Any]:
    return {"metadata": {"namespace": "n", "name": name, "uid": uid, "resourceVersion": "1"}}


@pytest.mark.parametrize(
    ("replicas", "engine", "words"),
    [
        (2, "", ["spec.draft.engine.maxRunning: left out, a draft holds 8 of 16 sessions"]),
        (1, "", []),
        (2, ", engine: {maxRunning: 9}", []),
    ],
)
def test_drafts_that_hold_less_than_targets_run_are_worth_a_word(
    replicas: int, engine: str, words: list[str]
) -> None:
    draft = f"draft: {{model: {{uri: 'hf://o/small'}}, {CALM}{engine}}}"
    target = f"target: {{model: {{uri: 'hf://o/large'}}, {CALM}, replicas: {replicas}}}"
    assert list(advice.on(load(f"{HEAD}spec: {{{target}, {draft}}}"))) == words


def drafting(speculation: str, placement: str = "Separate", gpus: tuple[int, int] = (0, 0)) -> Any:
    """Advice on a service with both roles, each with so many GPUs (draft's, target's)."""

    def role(number: int) -> str:
        gpu = f", limits: {{nvidia.com/gpu: {number}}}" if number else ""
        parallel = f", parallelism: {{tensor: {number}}}" if number else ""
        return f", resources: {{requests: {{memory: 1Gi}}{gpu}}}{parallel}"

    own = "" if placement == "Colocated" else role(gpus[0])
    small = f"{{model: {{uri: 'hf://o/small'}}, placement: {placement}{own}}}"
    large = f"{{model: {{uri: 'hf://o/large'}}, {ONE_BY_ONE}{role(gpus[1])}}}"
    roles = f"target: {large}, draft: {small}"
    return list(advice.on(load(f"{HEAD}spec: {{{roles}, speculation: {{{speculation}}}}}")))


def test_a_draft_of_fewer_nodes_than_rows_is_worth_a_word() -> None:
    path = "spec.speculation.nodesAhead: is less than"
    assert [one.partition(": drafts")[0] for one in drafting("nodesAhead: 15, width: 4")] == [
        f"{path} maxRows"
    ]
    both = drafting("nodesAhead: 7, maxRows: 8, width: 8")
    assert [one.removeprefix(path).split(":")[0] for one in both] == [" maxRows", " width"]
    assert drafting("nodesAhead: 16, width: 8") == []


@pytest.mark.parametrize(
    ("speculation", "gpus", "number"),
    [
        ("", (1, 1), "200"),
        ("", (1, 2), "150"),
        ("", (2, 6), None),
        ("disable: {gainBelowPercent: 105}", (1, 1), None),
        ("disable: {gainBelowPercent: 180}", (1, 1), None),
        ("enable: {gainAbovePercent: 120}", (1, 1), None),
        ("mode: Static", (1, 1), None),
        ("draftShrink: {policy: Never}", (1, 1), None),
        ("", (0, 0), None),
    ],
)
def test_a_break_even_that_few_drafts_reach_is_named(
    speculation: str, gpus: tuple[int, int], number: str | None
) -> None:
    found = drafting(speculation, gpus=gpus)
    expected = (
        []
        if number is None
        else [
            "spec.speculation.disable.gainBelowPercent: left out, drafting goes off under "
            f"{number}, which pays for its GPUs; 103 keeps it for any gain"
        ]
    )
    assert found == expected
