"""What `outrider validate` says of good and of wrong descriptions."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from outrider.cli.app import app
from outrider.cli.failures import BadInput
from outrider.cli.service.file import parse_service, read_service
from outrider.cli.service.validation import Problem, check
from outrider.contract.settings import ModelSettings
from outrider.worker.checkpoints.fingerprint import ignore_progress
from outrider.worker.checkpoints.prepare import prepare
from tests.tiny_models import make_unreadable, reverse_bytes, write_tiny

HEAD = "apiVersion: outrider.dev/v1alpha1\nkind: SpeculativeService\nmetadata: {name: mine}\n"
GOOD = HEAD + "spec: {target: {model: {uri: 'hf://a/b'}}}\n"
WRONG = HEAD + (
    "spec:\n  target:\n    model: {uri: 'ftp://a'}\n    engine: {threads: 0}\n"
    "  speculation: {depht: 3}\n"
)
IN_A_CLUSTER = HEAD + (
    "spec: {suspend: Suspended, target: {model: {uri: 'hf://a/b'}, image: 'a/b:1',"
    " resources: {limits: {nvidia.com/gpu: 2}}}, monitoring: {mode: Disabled}}\n"
)

NOT_OURS = "apiVersion: v1\nkind: Secret\nmetadata: {name: keys}\n"


def validated(text: str, *options: str) -> Any:
    return CliRunner().invoke(app, ["validate", "-", *options], input=text)


def test_a_good_file_is_valid(tmp_path: Path) -> None:
    file = tmp_path / "good.yaml"
    file.write_text(GOOD)
    result = CliRunner().invoke(app, ["validate", str(file)])
    assert (result.exit_code, result.stdout) == (0, f"{file}: the service mine is valid\n")


@pytest.mark.parametrize("file", sorted(Path("examples").glob("*.yaml")), ids=lambda f: f.name)
def test_every_example_is_valid(file: Path) -> None:
    assert [one.errors for one in check(file.read_text())] == [()]


def test_all_errors_come_at_once_with_their_paths() -> None:
    result = validated(WRONG)
    assert isinstance(result.exception, BadInput)
    lines = str(result.exception).splitlines()
    assert [line.split(": ")[1] for line in lines] == [
        "spec.target.model.uri",
        "spec.target.engine.threads",
        "spec.speculation.depht",
    ]
    assert all("allowed: " in line for line in lines)


def test_errors_as_json_have_paths_and_the_status_2() -> None:
    result = validated(WRONG, "--json")
    assert result.exit_code == 2
    found = json.loads(result.stdout)
    assert (found["file"], found["valid"], len(found["errors"])) == ("-", False, 3)
    assert found["errors"][1] == {
        "document": 1,
        "line": 7,
        "path": "spec.target.engine.threads",
        "message": "0 is not allowed; allowed: an integer from 1 to 1024",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "line 1, column 5: not YAML"),
        ("kind: Other", "apiVersion None and kind 'Other' are not served; allowed: outrider.dev"),
        ("5", "expected a mapping of keys to values, found int"),
        ("---\n", "expected a YAML document, found none"),
    ],
)
def test_what_is_wrong_with_the_whole_document_has_no_path(text: str, message: str) -> None:
    (found,) = check(text)
    (problem,) = found.errors
    assert problem.path == ""
    assert str(problem).startswith(message)


def test_a_wrong_kind_does_not_hide_what_else_is_wrong() -> None:
    (found,) = check(WRONG.replace("kind: SpeculativeService", "kind: SpeculativeServce"))
    assert [problem.path for problem in found.errors] == [
        "kind",
        "spec.target.model.uri",
        "spec.target.engine.threads",
        "spec.speculation.depht",
    ]


def test_rules_of_right_fields_are_named_beside_wrong_fields() -> None:
    text = WRONG.replace("mine", "Bad_Name")
    (found,) = check(text.replace("threads: 0", "threads: 0, device: GPU, dtype: int8"))
    assert [problem.path for problem in found.errors] == [
        "spec.target.model.uri",
        "spec.target.engine.threads",
        "spec.speculation.depht",
        "metadata.name",
        "spec.target.engine.dtype",
    ]


@pytest.mark.parametrize("name", ["5", "[1]", "{a: 1}", "10000000000000000000000", "2020-01-01"])
def test_a_rule_says_nothing_of_a_field_of_another_type(name: str) -> None:
    (found,) = check(GOOD.replace("name: mine", f"name: {name}").replace("hf:", "x:"))
    paths = sorted(problem.path for problem in found.errors)
    assert paths == ["metadata.name", "spec.target.model.uri"]


def test_several_files_are_checked_and_all_problems_named_at_once(tmp_path: Path) -> None:
    good, wrong = tmp_path / "good.yaml", tmp_path / "wrong.yaml"
    good.write_text(GOOD)
    wrong.write_text(WRONG)
    files = [str(good), str(wrong), str(tmp_path / "nowhere.yaml")]
    result = CliRunner().invoke(app, ["validate", *files])
    assert result.stdout == f"{good}: the service mine is valid\n"
    assert isinstance(result.exception, BadInput)
    lines = str(result.exception).splitlines()
    assert lines[0] == f"{tmp_path / 'nowhere.yaml'}: No such file or directory"
    assert [line.split(": ")[0] for line in lines[1:]] == [str(wrong)] * 3
    shown = CliRunner().invoke(app, ["validate", *files[:2], "--json"])
    found = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [(one["file"], one["valid"]) for one in found] == [(files[0], True), (files[1], False)]
    assert shown.exit_code == 2


def test_each_of_several_documents_is_checked_and_named() -> None:
    result = validated("---\n".join((WRONG, NOT_OURS, GOOD, "5\n", "b: 1: 2\n")))
    assert isinstance(result.exception, BadInput)
    lines = [line.split(": ")[1:3] for line in str(result.exception).splitlines()]
    assert lines == [
        ["document 1, line 6", "spec.target.model.uri"],
        ["document 1, line 7", "spec.target.engine.threads"],
        ["document 1, line 8", "spec.speculation.depht"],
        ["document 2, line 10", "apiVersion 'v1' and kind 'Secret' are not served; allowed"],
        ["document 4, line 19", "expected a mapping of keys to values, found int"],
        ["line 21, column 5", "not YAML"],
    ]
    assert result.stdout.splitlines() == [
        "-: document 3, line 14: the service mine is valid",
        "-: document 3, line 14: `outrider run` refuses it: it is one of 5 documents; "
        "allowed: one alone",
    ]


def test_an_empty_document_counts_and_another_kind_of_outriders_is_one_problem() -> None:
    scaler = "apiVersion: outrider.dev/v1alpha1\nkind: SpeculativeRoleScaler\nspec: {}\n"
    found = check("---\n".join((GOOD, "# nothing yet\n", scaler)))
    assert [(one.number, len(one.errors)) for one in found] == [(1, 0), (3, 1)]
    assert "'SpeculativeRoleScaler' are not served" in found[1].errors[0].message


def test_several_services_are_valid_for_a_cluster() -> None:
    result = validated(f"{GOOD}---\n{GOOD}", "--json")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["valid"], found["errors"]) == (0, True, [])
    assert [(one["document"], one["line"]) for one in found["refused_by_run"]] == [(1, 1), (2, 6)]


def test_a_problem_is_split_at_its_path() -> None:
    assert Problem.of("spec.a.0.b: 5: wrong") == Problem("spec.a.0.b", "5: wrong")


def test_what_is_for_a_cluster_is_valid_and_said() -> None:
    (found,) = check(IN_A_CLUSTER)
    assert found.errors == ()
    assert [problem.path for problem in found.refused] == ["spec.suspend"]
    assert set(found.ignored) >= {"spec.target.image", "spec.target.resources", "spec.monitoring"}
    result = validated(IN_A_CLUSTER)
    assert result.exit_code == 0
    assert "`outrider run` refuses it: spec.suspend: the service is Suspended" in result.stdout
    assert "`outrider run` ignores spec.target.image, " in result.stdout


@pytest.mark.parametrize("shape", ["pipeline: 2", "tensor: 2, nodes: 2"])
def test_what_a_cluster_needs_for_replicas_of_several_pods_is_said(shape: str) -> None:
    text = GOOD.replace("hf://a/b'}", f"hf://a/b'}}, parallelism: {{{shape}}}")
    result = validated(text)
    assert result.exit_code == 0
    needed = (
        "in a cluster it needs LeaderWorkerSet, as its replicas are several pods: kubectl apply"
    )
    assert f"-: {needed} " in result.stdout
    (words,) = json.loads(validated(text, "--json").stdout)["needed_in_a_cluster"]
    assert words.startswith(needed)
    assert json.loads(validated(GOOD, "--json").stdout)["needed_in_a_cluster"] == []


def test_a_model_that_is_not_here_is_refused_by_run_alone(tmp_path: Path) -> None:
    file = tmp_path / "service.yaml"
    write_tiny(tmp_path / "tiny")
    text = f"{HEAD}spec:\n  target:\n    model: {{uri: 'file:///nowhere'}}\n"
    file.write_text(f"{text}  draft:\n    model: {{uri: 'file://tiny'}}\n")
    result = CliRunner().invoke(app, ["validate", str(file)])
    problem = "spec.target.model.uri: /nowhere does not exist on this machine"
    assert result.exit_code == 0
    assert result.stdout.splitlines()[1:] == [f"{file}: `outrider run` refuses it: {problem}"]
    found = json.loads(CliRunner().invoke(app, ["validate", str(file), "--json"]).stdout)
    assert [(one["line"], one["path"]) for one in found["refused_by_run"]] == [
        (6, "spec.target.model.uri")
    ]
    with pytest.raises(BadInput, match=problem):
        read_service(file)


def test_a_file_that_is_not_there_is_named() -> None:
    result = CliRunner().invoke(app, ["validate", "nowhere.yaml"])
    assert isinstance(result.exception, BadInput)
    assert str(result.exception) == "nowhere.yaml: No such file or directory"


@pytest.mark.parametrize(("text", "words"), [("", "no text"), (b"\xff", "not UTF-8 text")])
def test_standard_input_that_cannot_be_read_is_named(text: str | bytes, words: str) -> None:
    result = CliRunner().invoke(app, ["validate", "-"], input=text)
    assert str(result.exception) == f"standard input: {words}"


GONE = HEAD + (
    "spec: {target: {model: {uri: 'hf://a/b'}}, upgrade: AtOnce,"
    " speculation: {planner: Bandit, sources: [Recycled]}}\n"
)


def test_fields_that_are_gone_are_ignored_with_a_warning_each() -> None:
    result = validated(GONE)
    assert (result.exit_code, result.stdout) == (0, "-: the service mine is valid\n")
    paths = ["spec.speculation.planner", "spec.upgrade", "spec.speculation.sources"]
    lines = result.stderr.splitlines()
    assert [line.split(" ")[1].rstrip(":") for line in lines] == paths
    assert all(line.startswith("-: ") and line.endswith("Leave it out.") for line in lines)
    assert len(json.loads(validated(GONE, "--json").stdout)["warnings"]) == len(paths)


def test_a_run_says_what_is_gone_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse_service(GONE, "mine.yaml") == parse_service(GOOD, "mine.yaml")
    assert capsys.readouterr().err.count("mine.yaml: spec.") == 3


def test_it_is_said_how_a_model_that_is_kept_here_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path / "cache"))
    model = write_tiny(tmp_path / "tiny")
    (model / "generation_config.json").write_text(json.dumps({"temperature": 0.7, "top_k": 20}))
    file = tmp_path / "service.yaml"
    file.write_text(GOOD.replace("hf://a/b", "file://tiny"))
    before = CliRunner().invoke(app, ["validate", str(file)]).stdout
    prepare(ModelSettings(uri=f"file://{model}"), tmp_path / "cache", ignore_progress)
    after = CliRunner().invoke(app, ["validate", str(file)]).stdout
    words = f"{file}: answers of the target file://{model} end at <|end|>; where a request names no"
    assert after == f"{before}{words} sampling: temperature 0.7, top_k 20\n"
    found = json.loads(CliRunner().invoke(app, ["validate", str(file), "--json"]).stdout)
    assert found["models"] == [
        {
            "document": 1,
            "role": "target",
            "uri": f"file://{model}",
            "end_tokens": ["<|end|>"],
            "default_sampling": {"temperature": 0.7, "top_k": 20},
        }
    ]


def test_it_is_said_how_a_draft_of_another_tokenizer_drafts_or_that_it_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "service.yaml"
    models = {name: write_tiny(tmp_path / name) for name in ("target", "draft")}
    file.write_text(f"{HEAD}spec: {{target: {{model: {{uri: 'file://{models['target']}'}}}}, ")
    with file.open("a") as text:
        text.write(f"draft: {{model: {{uri: 'file://{models['draft']}'}}}}}}\n")

    def said() -> Result:
        for model in models.values():
            prepare(ModelSettings(uri=f"file://{model}"), tmp_path / "cache", ignore_progress)
        return CliRunner().invoke(app, ["validate", str(file)])

    assert "tokenizer" not in said().stdout
    reverse_bytes(models["draft"])
    assert "the draft has another tokenizer: it drafts by the 100% of its tokens" in said().stdout
    make_unreadable(models["draft"])
    refused = said()
    assert isinstance(refused.exception, BadInput)
    assert str(refused.exception).startswith(
        f"{file}: spec.draft.model.uri: the draft cannot be used: the draft's tokens cannot be read"
    )


def test_a_worker_that_cannot_be_asked_makes_no_yaml_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path))
    (tmp_path / "models" / "aaaa").mkdir(parents=True)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "outrider").mkdir()
    (tmp_path / "outrider" / "__init__.py").touch()  # and no worker in it
    result = validated(GOOD)
    assert (result.exit_code, result.stdout) == (0, "-: the service mine is valid\n")
    assert "what is kept of its models is not known: the list of models ended" in result.stderr
