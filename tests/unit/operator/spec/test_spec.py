"""Descriptions that `load` accepts or refuses, and its messages."""

from pathlib import Path

import pytest
import yaml

from outrider.contract.settings import MAX_KV_BYTES, Dtype, PolicySettings
from outrider.operator.control.settings import ShrinkPolicy
from outrider.operator.spec import (
    EmbeddingsFrom,
    Placement,
    SpecError,
    SpeculativeService,
    accelerators,
    load,
)
from outrider.operator.spec.service import ServiceReader

EXAMPLES = sorted((Path(__file__).parents[4] / "examples").glob("*.yaml"))
EXAMPLE = Path(__file__).parents[4] / "examples" / "smollm2.yaml"
MINIMAL = """
apiVersion: outrider.dev/v1alpha1
kind: SpeculativeService
metadata: {name: tiny}
spec:
  target: {model: {uri: "file:///models/tiny"}}
"""
WITH_DRAFT = MINIMAL + "  draft: {model: {uri: 'file://draft'}%s}\n"


def problems(text: str) -> list[str]:
    with pytest.raises(SpecError) as refusal:
        load(text)
    return str(refusal.value).splitlines()


def test_fields_left_out_take_the_contract_s_defaults() -> None:
    spec = load(MINIMAL).spec
    policy = PolicySettings()
    assert spec.draft is None
    assert spec.target.engine.dtype is Dtype.AUTO
    assert (spec.speculation.max_rows, spec.speculation.depth) == (policy.max_rows, policy.depth)
    assert spec.speculation.nodes_ahead == policy.nodes_ahead


def test_the_example_is_valid_and_as_the_demo_needs_it() -> None:
    service = load(EXAMPLE.read_text())
    assert service.served_name == "smollm2-135m-instruct"
    assert service.spec.draft is not None
    assert service.spec.draft.placement is Placement.AUTO
    assert service.spec.draft.model.embeddings_from is EmbeddingsFrom.TARGET
    draft = service.at_folder(str(EXAMPLE.parent)).spec.draft
    assert draft is not None
    assert Path(draft.model.uri.removeprefix("file://"), "config.json").is_file()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_valid(example: Path) -> None:
    load(example.read_text())


def test_the_large_example_fills_a_machine_of_eight_gpus() -> None:
    spec = load((EXAMPLE.parent / "llama-70b.yaml").read_text()).spec
    assert spec.draft is not None
    roles = [spec.target, spec.draft]
    gpus = [accelerators.limits(role)["nvidia.com/gpu"] for role in roles]
    assert gpus == [role.parallelism.tensor for role in roles] == [6, 2]


@pytest.mark.parametrize(
    ("uri", "resolved"),
    [
        ("file://models/x", "file:///here/models/x"),
        ("file://../x", "file:///x"),
        ("file:///models/x", "file:///models/x"),
        ("hf://org/model", "hf://org/model"),
        ("package://name/x.gguf", "package://name/x.gguf"),
    ],
)
def test_only_relative_file_uris_are_taken_from_the_folder(uri: str, resolved: str) -> None:
    service = load(MINIMAL.replace("file:///models/tiny", uri)).at_folder("/here")
    assert service.spec.target.model.uri == resolved


@pytest.mark.parametrize(
    ("added", "line"),
    [
        (
            "{maxRows: 900}",
            "spec.speculation.maxRows: 900 is not allowed; allowed: an integer from 1 to 64",
        ),
        (
            "{depth: '4'}",
            "spec.speculation.depth: '4' is not allowed; allowed: an integer from 1 to 64",
        ),
        (
            "{width: 2.5}",
            "spec.speculation.width: 2.5 is not allowed; allowed: an integer from 1 to 64",
        ),
        (
            "{nodesAhead: true}",
            "spec.speculation.nodesAhead: True is not allowed; allowed: an integer from 1 to 512",
        ),
        (
            "{mode: true}",
            "spec.speculation.mode: True is not allowed; allowed: Adaptive, Static or Disabled",
        ),
        (
            "{enable: {gainAbovePercent: 0}}",
            "spec.speculation.enable.gainAbovePercent: 0 is not allowed; "
            "allowed: an integer from 1 to 1000",
        ),
        (
            "{max_rows: 4}",
            "spec.speculation.max_rows: unknown key; "
            "allowed: the keys mode, maxRows, depth, width, nodesAhead, "
            "disable, enable, control, draftShrink, link, sources",
        ),
        (
            "[]",
            "spec.speculation: [] is not allowed; "
            "allowed: the keys mode, maxRows, depth, width, nodesAhead, "
            "disable, enable, control, draftShrink, link, sources",
        ),
    ],
)
def test_a_wrong_value_is_named_with_its_path_and_what_is_allowed(added: str, line: str) -> None:
    assert problems(f"{MINIMAL}  speculation: {added}\n") == [line]


def test_a_draft_that_would_see_features_is_refused_by_name() -> None:
    """There is none (docs/decisions/0038): no such key is taken and forgotten."""
    (line,) = problems(WITH_DRAFT % ", method: Feature")
    assert line.startswith("spec.draft.method: unknown key; allowed: the keys model, replicas, ")


@pytest.mark.parametrize("wrong", ["512", "0Mi", "1.5Gi", "512MB", "10000Gi", "-1Gi", "4 Gi"])
def test_wrong_memory_is_named_with_an_example(wrong: str) -> None:
    text = MINIMAL.replace('tiny"}', f'tiny"}}, engine: {{kvMemory: "{wrong}"}}')
    assert problems(text) == [
        f"spec.target.engine.kvMemory: '{wrong}' is not allowed; "
        "allowed: a number and Mi or Gi, such as 512Mi, at most 9999Gi"
    ]


@pytest.mark.parametrize(("right", "size"), [("9999Gi", 9999 << 30), ("9999999Mi", 9999999 << 20)])
def test_the_most_memory_is_in_the_contract_s_range(right: str, size: int) -> None:
    service = load(MINIMAL.replace('tiny"}', f'tiny"}}, engine: {{kvMemory: {right}}}'))
    assert service.spec.target.engine.kv_bytes == size <= MAX_KV_BYTES


@pytest.mark.parametrize(
    ("requests", "line"),
    [
        ("{maxSeconds: 0}", "maxSeconds: 0 is not allowed; allowed: an integer from 1 to 86400"),
        (
            "{maxQueueSeconds: 86401}",
            "maxQueueSeconds: 86401 is not allowed; allowed: an integer from 1 to 86400",
        ),
        ("{maxWaiting: -1}", "maxWaiting: -1 is not allowed; allowed: an integer from 0 to 65536"),
        (
            "{maxRunning: 8}",
            "maxRunning: unknown key; allowed: the keys maxSeconds, maxQueueSeconds, maxWaiting, "
            "cutMaxTokens",
        ),
    ],
)
def test_a_wrong_limit_of_requests_is_named(requests: str, line: str) -> None:
    text = MINIMAL.replace('tiny"}', f'tiny"}}, requests: {requests}')
    assert problems(text) == [f"spec.target.requests.{line}"]


LAYERS = "a list of at most 8, each an integer from 1 to 1024"


@pytest.mark.parametrize(
    ("pipeline", "line"),
    [
        ("{cut: 30}", f"cut: 30 is not allowed; allowed: {LAYERS}"),
        ("{cut: [0]}", "cut.0: 0 is not allowed; allowed: an integer from 1 to 1024"),
        (
            "{cut: [1, 1, 1, 1, 1, 1, 1, 1, 1]}",
            f"cut: [1, 1, 1, 1, 1, 1, 1, 1, 1] is not allowed; allowed: {LAYERS}",
        ),
        ("{dtype: fp8}", "dtype: 'fp8' is not allowed; allowed: auto, fp32, bf16 or fp16"),
    ],
)
def test_a_wrong_cut_is_named(pipeline: str, line: str) -> None:
    text = MINIMAL.replace('tiny"}', f'tiny"}}, pipeline: {pipeline}')
    assert problems(text) == [f"spec.target.pipeline.{line}"]


@pytest.mark.parametrize(
    ("draft", "line"),
    [
        (
            ", placement: Apart",
            "spec.draft.placement: 'Apart' is not allowed; allowed: Auto, Separate, SamePod"
            " or Colocated",
        ),
        (
            ", engine: {dtype: fp6}",
            "spec.draft.engine.dtype: 'fp6' is not allowed; "
            "allowed: auto, fp32, bf16, int8, int4 or fp8",
        ),
        (
            ", update: {maxSurge: 101%}",
            "spec.draft.update.maxSurge: '101%' is not allowed; "
            "allowed: an integer from 0 or a percentage, as 1 or 25%",
        ),
        (
            f", resources: {{limits: {{cpu: {1 << 63}}}}}",
            f"spec.draft.resources.limits.cpu: {1 << 63} is not allowed; "
            "allowed: a quantity, as 2, 500m or 16Gi",
        ),
        (
            ", resources: {limits: {cpu: lots}}",
            "spec.draft.resources.limits.cpu: 'lots' is not allowed; "
            "allowed: a quantity, as 2, 500m or 16Gi",
        ),
        (
            ", engine: {kvMemory: 4G}",
            "spec.draft.engine.kvMemory: '4G' is not allowed; "
            "allowed: a number and Mi or Gi, such as 512Mi, at most 9999Gi",
        ),
        (
            ", cache: {type: PersistentVolumeClaim, claimName: A}",
            "spec.draft.cache.claimName: 'A' is not allowed; "
            "allowed: lower-case letters, digits, dashes and dots, at most 253 characters",
        ),
        (
            ", engine: {maxContext: 1}",
            "spec.draft.engine.maxContext: 1 is not allowed; "
            "allowed: an integer from 64 to 1048576",
        ),
    ],
)
def test_a_wrong_draft_is_named(draft: str, line: str) -> None:
    assert problems(WITH_DRAFT % draft) == [line]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (
            'tiny"}',
            'tiny"}, scaling: {mode: Managed}',
            "spec.target.scaling.mode: 'Managed' is not allowed; allowed: Static or External",
        ),
        (
            "file:///models",
            "s3://models",
            "spec.target.model.uri: 's3://models/tiny' is not allowed; allowed: a URI "
            "such as file:///path, hf://organisation/name or package://module/path, "
            "at most 512 characters",
        ),
        (
            'uri: "file:///models/tiny"',
            "",
            "spec.target.model.uri: missing; allowed: a URI such as file:///path, "
            "hf://organisation/name or package://module/path, at most 512 characters",
        ),
        (
            "kind: SpeculativeService",
            "kind: Deployment",
            "kind: 'Deployment' is not allowed; allowed: SpeculativeService",
        ),
        (
            "v1alpha1",
            "v2",
            "apiVersion: 'outrider.dev/v2' is not allowed; allowed: outrider.dev/v1alpha1",
        ),
        ("kind:", "? [1]\n: 2\nkind:", "line 3, column 3: not YAML: found unhashable key"),
        ("metadata:", "1: 2\nmetadata:", "1: 1 is not allowed; allowed: another value"),
    ],
)
def test_a_wrong_head_is_named(old: str, new: str, line: str) -> None:
    assert problems(MINIMAL.replace(old, new)) == [line]


def test_all_problems_are_listed_at_once() -> None:
    text = MINIMAL + "  speculation: {maxRows: 0, depth: 0}\n  drift: 1\n"
    assert [line.split(":")[0] for line in problems(text)] == [
        "spec.speculation.maxRows",
        "spec.speculation.depth",
        "spec.drift",
    ]


def test_an_object_of_an_api_server_is_read_without_what_the_server_keeps_for_itself() -> None:
    body = yaml.safe_load(MINIMAL)
    body["metadata"] |= {"uid": "1-2", "generation": 3, "labels": {"a": "b"}}
    body["status"] = {"conditions": []}
    service = ServiceReader().read(body)
    assert (service.metadata.labels, service.spec) == ({"a": "b"}, load(MINIMAL).spec)


@pytest.mark.parametrize(
    ("draft", "policy", "shrinks"),
    [
        ("", "{}", ShrinkPolicy.WHEN_DISABLED),
        ("", "{draftShrink: {policy: Never}}", ShrinkPolicy.NEVER),
        (", scaling: {mode: Static}", "{}", ShrinkPolicy.NEVER),
    ],
)
def test_drafts_shrink_by_default_where_the_operator_scales_them(
    draft: str, policy: str, shrinks: ShrinkPolicy
) -> None:
    assert load(WITH_DRAFT % draft + f"  speculation: {policy}").spec.shrink_policy is shrinks


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: [1,\nb: 2", "line 2, column 5: not YAML: expected ',' or ']', but got"),
        ("a: 1\n\tb: 2", "line 2, column 1: not YAML: found character '\\t' that cannot start"),
        ("a: 1\nb: 2\na: 3", "line 3, column 1: not YAML: the key 'a' is there twice"),
        ("a: !!python/object:os.system x", "line 1, column 4: not YAML: could not determine"),
        (MINIMAL + "---" + MINIMAL, "expected one YAML document, found 2"),
        ("# nothing", "expected one YAML document, found none"),
        ("- a", "expected a mapping of keys to values, found list"),
        ("\x00", "line 1, column 1: not YAML: the character U+0000 is not allowed"),
    ],
)
def test_what_is_no_single_mapping_is_refused_with_its_place(text: str, line: str) -> None:
    assert problems(text)[0].startswith(line)


def test_every_field_is_described() -> None:
    schema = SpeculativeService.model_json_schema()
    parts = schema["$defs"]
    described = [schema, *(part for part in parts.values() if "properties" in part)]
    for name, field in ((n, f) for part in described for n, f in part["properties"].items()):
        referred = parts.get(field.get("$ref", "").rpartition("/")[2], {})
        assert field.get("description") or referred.get("description"), name


def test_yaml_that_is_nested_too_deeply_is_refused_in_words() -> None:
    with pytest.raises(SpecError, match=r"^nested too deeply$"):
        load("[" * 3000 + "]" * 3000)
