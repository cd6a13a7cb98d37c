"""What the options of `outrider serve` stand for: one YAML, the same however it is run."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from outrider.cli.app import app
from outrider.cli.failures import BadInput
from outrider.cli.models.argument import model_name, model_uri, service_name
from outrider.cli.service.file import read_service
from outrider.cli.service.from_options import document, service_of, yaml_of
from outrider.contract.processors import count
from outrider.contract.settings import Dtype
from outrider.operator.plan import PlanOptions, plan


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model, a draft that borrows its embedding, and a GGUF file; we are in it."""
    for name, config in (("target", {}), ("draft", {"target": {"name": "target"}})):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    (tmp_path / "small.gguf").touch()
    (tmp_path / "SMALL.GGUF").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["serve", *arguments, "--print-yaml"])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        ("target", "file://{here}/target"),
        ("./small.gguf", "file://{here}/small.gguf"),
        ("./SMALL.GGUF", "file://{here}/SMALL.GGUF"),
        ("{here}/target", "file://{here}/target"),
        ("file://target", "file://{here}/target"),
        ("org/name", "hf://org/name"),
        ("hf://org/name@v1", "hf://org/name@v1"),
        ("package://module/file.gguf", "package://module/file.gguf"),
    ],
)
def test_a_model_is_named_in_the_ways_that_people_do(models: Path, text: str, uri: str) -> None:
    assert model_uri("MODEL", text.format(here=models)) == uri.format(here=models)


def test_a_printed_service_is_in_the_order_in_which_people_write_one(models: Path) -> None:
    assert list(yaml.safe_load(printed("target"))) == ["apiVersion", "kind", "metadata", "spec"]


def test_a_folder_that_is_there_goes_before_a_repository(models: Path) -> None:
    (models / "org" / "name").mkdir(parents=True)
    (models / "org" / "name" / "config.json").write_text("{}")
    assert model_uri("MODEL", "org/name") == f"file://{models}/org/name"


@pytest.mark.parametrize(
    "text",
    [
        *("nowhere", "./nowhere", "file:///nowhere", "a b/c", "hf://name", "http://x/y", ""),
        *("nowhere.gguf", "org/nowhere.gguf", "target/nowhere"),
    ],
)
def test_what_is_no_model_is_refused_with_what_is_allowed(models: Path, text: str) -> None:
    with pytest.raises(BadInput, match=r"^--draft .*; allowed: a folder with config\.json"):
        model_uri("--draft", text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("empty", "has no config.json"),
        ("notes.txt", "is not a .gguf file"),
        ("nowhere.gguf", "does not exist"),
        ("target/nowhere", "does not exist"),
    ],
)
def test_a_path_without_a_model_is_refused_with_the_reason(
    models: Path, text: str, problem: str
) -> None:
    (models / "empty").mkdir()
    (models / "notes.txt").touch()
    with pytest.raises(BadInput, match=rf"^MODEL {text} {problem}; allowed: "):
        model_uri("MODEL", text)


def test_a_draft_that_borrows_its_embedding_serves_nothing_alone(models: Path) -> None:
    result = CliRunner().invoke(app, ["serve", "draft", "--print-yaml"])
    assert isinstance(result.exception, BadInput)
    assert "MODEL draft is a draft that borrows its target's embedding" in str(result.exception)


@pytest.mark.parametrize(
    ("uri", "name", "service"),
    [
        ("hf://Org/Model-1.5B@v1", "Model-1.5B", "model-1-5b"),
        ("file:///models/SmolLM2.Q4_1.gguf", "SmolLM2.Q4_1", "smollm2-q4-1"),
        ("file:///models/" + "x" * 39 + "-y", "x" * 39 + "-y", "x" * 39),
        ("file:///models/模型", "模型", "model"),
    ],
)
def test_a_service_has_its_model_s_name_as_far_as_kubernetes_takes_it(
    uri: str, name: str, service: str
) -> None:
    assert (model_name(uri), service_name(name)) == (name, service)
    assert service_of(document(target=uri)).served_name == name


def test_every_option_is_in_the_yaml(models: Path) -> None:
    text = printed(
        *("target", "--draft", "draft", "--context", "512", "--placement", "Separate"),
        *("--max-running", "3", "--dtype", "int8", "--threads", "2"),
    )
    assert yaml.safe_load(text) == {
        "apiVersion": "outrider.dev/v1alpha1",
        "kind": "SpeculativeService",
        "metadata": {"name": "target"},
        "spec": {
            "target": {
                "model": {"uri": f"file://{models}/target"},
                "engine": {
                    "dtype": "int8",
                    "threads": 2,
                    "maxContext": 512,
                    "maxRunning": 3,
                },
            },
            "draft": {
                "model": {"uri": f"file://{models}/draft", "embeddingsFrom": "Target"},
                "engine": {"dtype": "int8"},
                "placement": "Separate",
            },
        },
    }


def test_the_yaml_runs_as_the_options_do(models: Path) -> None:
    served = document(
        target=f"file://{models}/target",
        draft="hf://org/draft",
        dtype=Dtype.INT8,
        context=512,
    )
    file = models / "service.yaml"
    file.write_text(yaml_of(served, "outrider serve …"))
    assert read_service(file) == service_of(served)
    assert plan(read_service(file), PlanOptions()) == plan(service_of(served), PlanOptions())


def test_the_yaml_begins_with_its_command_as_a_comment(models: Path) -> None:
    first, second, third, *_ = printed("target").splitlines()
    assert first.startswith("# outrider")
    assert "outrider run -f" in second
    assert "kubectl apply -f" in third


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("target",), ["threads are", "a file:// model"]),
        (("target", "--draft", "draft"), ["a file:// model"]),
        (("org/name",), ["threads are"]),
        (("org/name", "--draft", "org/draft"), []),
        (("org/name", "--draft", "draft", "--threads", "2"), ["threads are", "a file:// model"]),
    ],
)
def test_the_yaml_says_what_is_of_this_machine_where_something_is(
    models: Path, arguments: tuple[str, ...], words: list[str]
) -> None:
    comments = [line for line in printed(*arguments).splitlines() if "kubectl" in line]
    assert len(comments) == bool(words)
    found = [words for words in ("threads are", "a file:// model") if words in "".join(comments)]
    assert found == words


def test_without_a_draft_the_target_has_all_processors(models: Path) -> None:
    def threads(*arguments: str) -> Any:
        engine = yaml.safe_load(printed("target", *arguments))["spec"]["target"].get("engine", {})
        return engine.get("threads")

    assert threads() == count()
    assert threads("--threads", "1") == 1
    assert threads("--draft", "draft") is None, "what is fastest is found at the start"


def test_a_draft_borrows_an_embedding_if_its_config_or_an_option_says_so(models: Path) -> None:
    def lender(draft: str, borrow: bool) -> Any:
        served = document(target="hf://a/b", draft=draft, borrow_embedding=borrow)
        return served["spec"]["draft"]["model"].get("embeddingsFrom")

    assert lender(f"file://{models}/draft", False) == "Target"
    assert lender(f"file://{models}/target", False) is None
    assert lender("hf://a/c", False) is None
    assert lender("hf://a/c", True) == "Target"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"placement": "Auto"}, r"^--placement needs --draft MODEL\.$"),
        (
            {"borrow_embedding": True},
            r"^--borrow-embedding needs --draft",
        ),
        (
            {"draft": "hf://a/c", "placement": "Near"},
            r"^outrider serve: spec\.draft\.placement: 'Near' is not allowed; allowed: Auto, Sep",
        ),
        (
            {"threads": 0},
            r"^outrider serve: spec\.target\.engine\.threads: 0 is not allowed; allowed: an int",
        ),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        service_of(document("hf://a/b", **options))


@pytest.mark.parametrize("arguments", [["--context", "1"], ["--max-running", "0"], ["--port", "x"]])
def test_numbers_out_of_range_are_refused(models: Path, arguments: list[str]) -> None:
    result = CliRunner().invoke(app, ["serve", "target", *arguments, "--print-yaml"])
    assert result.exit_code == 2
    assert arguments[0] in result.output


def test_a_service_beyond_loopback_is_refused_before_anything_is_loaded(models: Path) -> None:
    result = CliRunner().invoke(app, ["serve", "target", "--host", "0.0.0.0"])
    assert isinstance(result.exception, BadInput)
    assert str(result.exception).startswith(
        "--host 0.0.0.0: other machines reach it, so it needs --api-keys"
    )
