"""Options, exit statuses and words of the `outrider` command, where no worker is started."""

import errno
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from outrider.cli.app import app, exit_with_words
from outrider.cli.commands.options import sampling_of
from outrider.client import Sampling
from outrider.client.errors import ERRORS

EXAMPLE = Path(__file__).parents[3] / "examples" / "pool.yaml"
WRONG = (
    "apiVersion: outrider.dev/v1alpha1\nkind: SpeculativeService\nmetadata: {name: a}\nspec: 5\n"
)


def outcome(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as end:
        exit_with_words(lambda: app(list(arguments)))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    return int(end.value.code or 0), captured.err


def commands(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, by its words."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*words, name))
        else:
            yield (*words, name), command


def test_help_has_examples_and_names_only_options_that_the_command_has() -> None:
    for words, command in commands(get_command(app)):
        result = CliRunner().invoke(app, [*words, "--help"])
        assert result.exit_code == 0
        assert f"outrider {' '.join(words)} " in result.output
        own = {name for option in command.params for name in option.opts}
        texts = " ".join(getattr(option, "help", None) or "" for option in command.params)
        assert set(re.findall(r"--[a-z][a-z-]*", texts)) <= own, words


def test_examples_of_help_fit_a_terminal_of_80_columns() -> None:
    for words, command in commands(get_command(app)):
        _, *blocks = (command.help or "").split("```")
        assert [line for line in "\n".join(blocks).splitlines() if len(line) > 78] == [], words


def test_an_option_is_taken_from_its_environment_variable() -> None:
    given = {"OUTRIDER_SERVE_CONTEXT": "512", "OUTRIDER_SERVE_PRINT_YAML": "1"}
    result = CliRunner().invoke(app, ["serve", "org/name"], env=given)
    assert "maxContext: 512" in result.stdout
    result = CliRunner().invoke(app, ["serve", "org/name", "--context", "256"], env=given)
    assert "maxContext: 256" in result.stdout


def test_a_refused_value_of_the_environment_is_named_with_its_variable(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTRIDER_SERVE_PORT", "tcp://10.0.0.1")
    status, words = outcome(capsys, "serve", "org/name")
    assert status == 2
    assert "'--port': the value is not a whole number." in words
    assert "It is from the environment variable OUTRIDER_SERVE_PORT." in words
    assert "OUTRIDER" not in outcome(capsys, "serve", "org/name", "--port", "x")[1]


def test_the_version_is_the_package_s() -> None:
    assert CliRunner().invoke(app, ["--version"]).output.startswith("outrider ")


def test_a_missing_file_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    status, words = outcome(capsys, "run", "-f", "nowhere.yaml")
    assert status == 2
    assert words.startswith("outrider: nowhere.yaml: ")


def test_a_wrong_file_is_named_with_its_problem(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(WRONG)
    status, words = outcome(capsys, "run", "-f", str(file), "--prompt", "x")
    assert status == 2
    assert words.startswith(f"outrider: {file}: spec: 5 is not allowed; allowed: the keys target")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("parallelism: {tensor: 4, nodes: 2}", r"spec\.target\.parallelism\.nodes: 2 .*allowed: 1"),
        (
            "}, draft: {model: {uri: 'hf://a/b'}, placement: Colocated, parallelism: {tensor: 2}",
            r"spec\.draft: image, parallelism and .*Colocated",
        ),
        ("}, suspend: Suspended, monitoring: {", r"spec\.suspend: .*Suspended; allowed: Running"),
    ],
)
def test_what_needs_a_cluster_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, change: str, words: str
) -> None:
    file = tmp_path / "large.yaml"
    file.write_text(
        "apiVersion: outrider.dev/v1alpha1\nkind: SpeculativeService\nmetadata: {name: large}\n"
        f"spec: {{target: {{model: {{uri: 'hf://a/b'}}, {change}}}}}\n"
    )
    status, said = outcome(capsys, "run", "-f", str(file))
    assert status == 2
    assert re.fullmatch(f"outrider: {re.escape(str(file))}: {words}.*\n", said)


@pytest.mark.parametrize(
    "command",
    [
        ("serve", "hf://a/b"),
        ("run", "-f", str(EXAMPLE)),
    ],
)
def test_a_choice_that_there_is_not_is_refused_in_our_words_alone(
    capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    status, words = outcome(capsys, *command, "--dtype", "int9")
    assert status == 2
    assert "Invalid value for '--dtype': 'int9' is not one of 'auto', 'fp32'" in words


def test_a_binary_file_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "binary.yaml"
    file.write_bytes(b"\xff\xfe\x00")
    assert outcome(capsys, "profile", "-f", str(file))[0] == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("run",),
        ("run", "-f", "x.yaml", "--compare"),
        ("run", "-f", "x.yaml", "--json"),
        ("generate",),
    ],
)
def test_bad_input_ends_with_status_2(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    assert outcome(capsys, *arguments)[0] == 2


RUN, GENERATE = ("run", "-f", "x.yaml", "--prompt"), ("generate",)


@pytest.mark.parametrize(
    ("command", "option", "value", "limits"),
    [
        (RUN, "--temperature", "nan", "0 to 100"),
        (GENERATE, "--temperature", "inf", "0 to 100"),
        (GENERATE, "--temperature", "-0.5", "0 to 100"),
        (GENERATE, "--max-tokens", "0", "1 to 1048576"),
        (RUN, "--max-tokens", "1048577", "1 to 1048576"),
        (GENERATE, "--seed", "-1", "0 to 18446744073709551615"),
        (RUN, "--seed", "18446744073709551616", "0 to 18446744073709551615"),
    ],
)
def test_a_value_out_of_range_is_named_with_its_option_and_the_range(
    capsys: pytest.CaptureFixture[str],
    command: tuple[str, ...],
    option: str,
    value: str,
    limits: str,
) -> None:
    status, words = outcome(capsys, *command, "x", option, value)
    assert status == 2
    said = " ".join(words.replace("│", " ").split())
    assert re.search(rf"'{option}': {re.escape(value)} .*{re.escape(limits)}", said)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("top_x=1", "--sampling top_x: unknown; allowed: top_p, top_k, min_p, "),
        ("top_p=0.9,top_k=0.5", "--sampling top_k: '0.5' is not a number."),
        ("top_p", "--sampling top_p: '' is not a number."),
    ],
)
def test_a_sampling_param_that_cannot_be_read_is_named(
    capsys: pytest.CaptureFixture[str], given: str, words: str
) -> None:
    status, said = outcome(capsys, "generate", "x", "--sampling", given)
    assert status == 2
    assert words in " ".join(said.split())


def test_sampling_params_are_taken_by_name() -> None:
    found = sampling_of(0.8, None, "top_p=0.9, top_k=40,min_p=0.05")
    assert found == Sampling(temperature=0.8, top_p=0.9, top_k=40, min_p=0.05)


def test_the_command_line_imports_nothing_heavy() -> None:
    code = """
import sys, outrider.cli.app
heavy = {"torch", "numba", "numpy", "transformers", "kopf", "kubernetes"}
heavy |= {"grpc", "google.protobuf", "pydantic", "yaml", "httpx", "asyncio", "matplotlib"}
sys.exit(", ".join(heavy & set(sys.modules)) or None)"""
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(
    "refused",
    [
        ("run", "-f", "nowhere.yaml"),
        ("serve", "no model"),
        ("serve", "a/b", "--host", "nowhere"),
        ("validate", "nowhere.yaml"),
        ("generate",),
        ("nope",),
    ],
)
def test_what_can_be_refused_at_once_waits_for_no_import(refused: tuple[str, ...]) -> None:
    code = f"""
import sys
from outrider.cli.app import app, exit_with_words
try:
    exit_with_words(lambda: app({list(refused)}))
except SystemExit as end:
    heavy = {{"grpc", "yaml", "asyncio", "outrider.operator.spec", "rich.console"}}
    print(end.code, ", ".join(heavy & set(sys.modules)))"""
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert ended.stdout == "2 \n", ended.stderr


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.ETIMEDOUT])
def test_an_error_of_the_file_system_is_one_line(
    capsys: pytest.CaptureFixture[str], number: int
) -> None:
    def fails() -> None:
        raise OSError(number, "some reason", "/cache/model")

    with pytest.raises(SystemExit) as end:
        exit_with_words(fails)
    assert end.value.code == 1
    assert capsys.readouterr().err == "outrider: /cache/model: some reason\n"


def test_an_error_of_the_file_system_without_words_has_its_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refused() -> None:
        raise PermissionError

    with pytest.raises(SystemExit):
        exit_with_words(refused)
    assert capsys.readouterr().err == "outrider: PermissionError\n"


@pytest.mark.parametrize("error", [TimeoutError(), ConnectionResetError(104, "reset by peer")])
def test_a_lost_connection_of_which_nobody_spoke_keeps_its_traceback(error: OSError) -> None:
    def lost() -> None:
        raise error

    with pytest.raises(type(error)):
        exit_with_words(lost)


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("typer", ("--help",)),  # the first thing that the command imports
        ("yaml", ("validate", str(EXAMPLE))),  # the command itself imports it
    ],
)
def test_a_ctrl_c_while_modules_are_imported_is_one_line(
    tmp_path: Path, module: str, arguments: tuple[str, ...]
) -> None:
    interrupting = tmp_path / f"{module}.py"
    interrupting.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    path = os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "outrider.cli", *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "outrider: stopped\n")


@pytest.mark.parametrize(
    ("status", "words", "line"),
    [
        (grpc.StatusCode.UNAVAILABLE, "Socket closed", "needs --tls-ca FILE, or --tls-ca system"),
        (
            grpc.StatusCode.UNAVAILABLE,
            "no route",
            "cannot reach the target, or lost",
        ),
        (
            grpc.StatusCode.UNAVAILABLE,
            "Failed to connect to remote host: Connection refused",
            "`outrider serve MODEL` starts one",
        ),
        (
            grpc.StatusCode.UNAVAILABLE,
            "Failed parsing HTTP/2 (Trying to connect an http1.x server (HTTP status 404))",
            "that port speaks HTTP",
        ),
        (grpc.StatusCode.UNAUTHENTICATED, "no key", "no key; --api-key-env VARIABLE says where"),
        (grpc.StatusCode.INVALID_ARGUMENT, "seed: wrong", "outrider: seed: wrong"),
        (grpc.StatusCode.INTERNAL, "it fell", "outrider: it fell"),
    ],
)
def test_an_error_of_a_call_is_one_line(
    capsys: pytest.CaptureFixture[str], status: grpc.StatusCode, words: str, line: str
) -> None:
    def ask() -> None:
        raise ERRORS[status](words, status)

    with pytest.raises(SystemExit) as end:
        exit_with_words(ask)
    mendable = status in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.INVALID_ARGUMENT)
    assert end.value.code == (2 if mendable else 1)
    said = capsys.readouterr().err
    assert line in said
    assert said.count("\n") == 1


def test_an_error_that_nobody_foresaw_keeps_its_traceback() -> None:
    def fall() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        exit_with_words(fall)


@pytest.mark.parametrize("command", [("generate", "x"), ("top",)])
@pytest.mark.parametrize(
    "address", ["", "http://127.0.0.1:50051", "127.0.0.1", "a:", ":1", "a:b", "a:1,b", "a:65536"]
)
def test_an_address_that_is_none_is_refused_before_anybody_is_asked(
    capsys: pytest.CaptureFixture[str], command: tuple[str, ...], address: str
) -> None:
    status, words = outcome(capsys, *command, "--address", address)
    assert status == 2
    said = " ".join(words.replace("│", " ").split())
    assert "is not allowed; allowed: host:port." in said


@pytest.mark.parametrize("name", ["null", "mybox:8000", "https://chat.example.com/", "https://*"])
def test_a_host_that_is_none_is_refused_before_anything_is_loaded(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    status, words = outcome(capsys, "serve", "./model", "--allow-host", name)
    assert status == 2
    assert f"{name!r} is not allowed; " in " ".join(words.replace("│", " ").split())
