"""A settings file is read back as it was written, and refused by the name of what is wrong."""

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contract.settings import (
    MAX_CONTEXT,
    MIN_CONTEXT,
    POLICY_RANGES,
    AllReduceKind,
    Device,
    Dtype,
    ModelSettings,
    PipelineSettings,
    PolicySettings,
    Role,
    SettingsError,
    StageDtype,
    WorkerSettings,
)


def numbers(name: str) -> st.SearchStrategy[int]:
    return st.integers(*POLICY_RANGES[name])


models = st.builds(
    ModelSettings,
    uri=st.text(),
    embeddings_from=st.none() | st.text(),
    dtype=st.sampled_from(Dtype),
)
policies = st.builds(
    PolicySettings,
    version=numbers("version"),
    speculate=st.booleans(),
    max_rows=numbers("max_rows"),
    off_below_percent=numbers("off_below_percent"),
    drafts=st.lists(st.integers(1, 65535).map("host:{}".format), unique=True).map(tuple),
)
cuts = st.lists(st.integers(1, 1024), min_size=2, max_size=8).map(tuple)
pipelines = st.builds(PipelineSettings, stages=st.integers(1, 8), dtype=st.sampled_from(StageDtype))
cut_pipelines = cuts.map(lambda cut: PipelineSettings(stages=len(cut), cut=cut))
arrangements = st.fixed_dictionaries({"pipeline": pipelines | cut_pipelines}) | (
    st.fixed_dictionaries({"colocated": st.none() | models})
)
settings = st.builds(
    lambda arrangement, **fields: WorkerSettings(**arrangement, **fields),
    arrangement=arrangements,
    role=st.just(Role.TARGET),
    name=st.text(),
    model=models,
    device=st.sampled_from(Device),
    threads=st.integers(1, 512),
    max_context=st.none() | st.integers(MIN_CONTEXT, MAX_CONTEXT),
    policy=policies,
    cache=st.none() | st.text(),
    http_listen=st.text(),
    guarded=st.just(True),
    allowed_hosts=st.tuples() | st.just(("chat.example", "::1", "*")),
    api_keys_file=st.none() | st.text(),
)
SMALLEST: dict[str, Any] = {"role": "draft", "name": "m", "model": {"uri": "file:///m"}}


@given(settings)
def test_a_written_file_is_read_back_equal(written: WorkerSettings) -> None:
    assert WorkerSettings.from_json(written.to_json()) == written


def test_what_is_left_out_takes_its_default() -> None:
    read = WorkerSettings.from_json(json.dumps(SMALLEST))
    expected = WorkerSettings(role=Role.DRAFT, name="m", model=ModelSettings(uri="file:///m"))
    assert read == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"thread": 2}, "settings.thread: unknown key; allowed: role, name, model"),
        ({"role": "judge"}, "settings.role: 'judge' is not one of target, draft"),
        ({"role": ["draft"]}, r"settings.role: \['draft'\] is not one of target, draft"),
        ({"model": {}}, "settings.model.uri: missing"),
        ({"model": "file:///m"}, "settings.model: expected an object, got 'file:///m'"),
        ({"model": {"uri": 7}}, "settings.model.uri: expected str, got 7"),
        ({"model": {"uri": "u", "dtype": "fp7"}}, "settings.model.dtype: 'fp7' is not one of"),
        ({"device": "tpu"}, "settings.device: 'tpu' is not one of auto, cpu, gpu"),
        (
            {"all_reduce": "ring"},
            "settings.all_reduce: 'ring' is not one of gather, one_shot, fused",
        ),
        ({"prefill": "library"}, "settings.prefill: library .* allowed here: exact"),
        (
            {"role": "target", "device": "cpu", "prefill": "library"},
            "settings.prefill: library is for a target on a GPU",
        ),
        (
            {"role": "target", "pipeline": {"stages": 2}, "prefill": "library"},
            "settings.prefill: library .* not cut over stages",
        ),
        ({"pipeline": {"stages": 2}}, "settings.pipeline.stages: only a target"),
        (
            {"role": "target", "pipeline": {"stages": 3, "cut": [14, 16]}},
            "settings.pipeline.cut: 2 .*settings.pipeline.stages is 3",
        ),
        (
            {"role": "target", "pipeline": {"stages": 2, "cut": [30, 0]}},
            r"settings.pipeline.cut\[1\]: 0 .* 1 to 1024",
        ),
        (
            {"role": "target", "pipeline": {"stages": 2, "dtype": "int8"}},
            "settings.pipeline.dtype: 'int8' is not one of auto, fp32, bf16, fp16",
        ),
        (
            {"link": "pigeon"},
            "settings.link: 'pigeon' is not one of auto, shared_memory, distributed, grpc",
        ),
        ({"threads": "2"}, "settings.threads: expected int, got '2'"),
        ({"threads": True}, "settings.threads: expected int, got True"),
        ({"threads": 1.5}, "settings.threads: expected int, got 1.5"),
        ({"policy": {"drafts": "a:1"}}, "settings.policy.drafts: expected a list, got 'a:1'"),
        ({"policy": {"drafts": ["a:1", 2]}}, r"settings.policy.drafts\[1\]: expected str, got 2"),
        (
            {"policy": {"sources": ["draft", "prediction"]}},
            "settings.policy.sources: a prediction comes .* some of draft, suffix, answers",
        ),
        ({"api_keys_file": "f"}, "settings.api_keys_file: only a target"),
        ({"allowed_hosts": ["h"]}, "settings.allowed_hosts: only a target"),
        ({"allowed_hosts": ["h:1"]}, "settings.allowed_hosts: 'h:1' is not allowed"),
        ({"tls_cert": "c", "tls_key": "k"}, "settings.tls_cert: only a target"),
        ({"role": "target", "tls_cert": "c"}, "settings.tls_cert, settings.tls_key: one needs"),
        ({"role": "target", "tls_key": "k"}, "settings.tls_cert, settings.tls_key: one needs"),
        ({"colocated": {"uri": "u"}}, "settings.colocated: only a target can hold a draft"),
        (
            {"role": "target", "colocated": {"uri": "u"}, "pipeline": {"stages": 2}},
            "settings.colocated: not allowed where settings.pipeline.stages is more than 1",
        ),
    ],
)
def test_a_wrong_value_is_refused_by_its_path(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=f"^{message}"):
        WorkerSettings.from_json(json.dumps(SMALLEST | change))


@pytest.mark.parametrize(
    ("key", "least", "most"),
    [
        ("threads", 1, 1024),
        ("max_running", 1, 1024),
        ("max_waiting", 0, 65536),
        ("request_seconds", 1, 86400),
        ("queue_seconds", 1, 86400),
        ("max_context", 64, 1048576),
        ("pipeline.stages", 1, 8),
        ("policy.version", 0, 2**53 - 1),
        ("policy.max_rows", 1, 64),
        ("policy.depth", 1, 64),
        ("policy.width", 1, 64),
        ("policy.nodes_ahead", 1, 512),
        ("policy.off_below_percent", 0, 1000),
        ("policy.on_above_percent", 0, 1000),
    ],
)
def test_a_number_out_of_its_range_is_refused_with_the_range(
    key: str, least: int, most: int
) -> None:
    for value in (least, most):
        assert read_with(key, value)
    for value in (least - 1, most + 1):
        message = f"^settings.{key}: {value} .* {least} to {most}$"
        with pytest.raises(SettingsError, match=message):
            read_with(key, value)


def read_with(key: str, value: int) -> WorkerSettings:
    """The smallest file with one more number."""
    part, _, name = key.rpartition(".")
    change: dict[str, Any] = {part: {name: value}} if part else {name: value}
    role = {"role": "target"} if part == "pipeline" else {}
    return WorkerSettings.from_json(json.dumps(SMALLEST | role | change))


@pytest.mark.parametrize("text", ["", "{", "[]", "null"])
def test_a_file_that_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(SettingsError):
        WorkerSettings.from_json(text)


def test_the_part_on_one_rank_adds_nothing_up() -> None:
    base = WorkerSettings(role=Role.TARGET, name="m", model=ModelSettings(uri="file:///m"))
    stages = PipelineSettings(stages=2)
    cut = dataclasses.replace(
        base, tensor_parallel=2, all_reduce=AllReduceKind.FUSED, pipeline=stages
    )
    assert WorkerSettings.from_json(cut.to_json()) == cut
    assert cut.on_one_rank() == base


@pytest.mark.parametrize(
    ("pipeline", "problem"),
    [
        ({"stages": 3}, None),
        ({"stages": 2, "cut": (1, 2)}, None),
        ({"stages": 4}, r"settings.pipeline.stages: 4 .* 3 layers"),
        (
            {"stages": 2, "cut": (2, 2)},
            r"settings.pipeline.cut: 2 \+ 2 = 4 layers .* 3",
        ),
    ],
)
def test_stages_that_a_model_cannot_fill_are_refused_with_both_numbers(
    pipeline: dict[str, Any], problem: str | None
) -> None:
    made = PipelineSettings(**pipeline)
    if problem is None:
        made.check_layers(3)
    else:
        with pytest.raises(SettingsError, match=f"^{problem}$"):
            made.check_layers(3)


@pytest.mark.parametrize(("threads", "drafts"), [(1, 1), (2, 2), (3, 3), (16, 4)])
def test_a_colocated_draft_computes_with_its_targets_threads_on_one_rank(
    threads: int, drafts: int
) -> None:
    base = WorkerSettings(role=Role.TARGET, name="m", model=ModelSettings(uri="file:///m"))
    cut = dataclasses.replace(base, threads=threads, tensor_parallel=2)
    assert cut.for_colocated_draft() == dataclasses.replace(base, threads=drafts)
