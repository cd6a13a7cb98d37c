"""The commands and programs of the page on other languages, against a server of this build."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from protos.generate import ROOT

PAGE = Path(__file__).parents[2] / "docs/how-to/other-languages.md"
HERE = Path(__file__).parent
PROTO = "outrider/protos/v1/inference.proto"
ADDRESS = "127.0.0.1:50051"
SAID = "one two three four"
pytestmark = pytest.mark.timeout(900)  # the first time, packages are downloaded and compiled


def block(language: str, start: str) -> str:
    """The one block of the page in a language that has a line with `start`."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (found,) = [text for kind, text in blocks if kind == language and f"\n{start}" in f"\n{text}"]
    return str(found)


def command(program: str) -> list[str]:
    """The words of the page's one block line that runs a program."""
    lines = block("", f"{program} ").replace("\\\n", " ").splitlines()
    (found,) = [line for line in lines if line.startswith(f"{program} ")]
    return shlex.split(found)


def run(*command: str, folder: Path, **environment: str) -> str:
    """What a command prints."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def folder_with_proto(source: Path, to: Path) -> Path:
    """A folder with pinned packages and the one file that a client needs."""
    shutil.copytree(source, to, dirs_exist_ok=True)
    (to / PROTO).parent.mkdir(parents=True)
    shutil.copy(ROOT / PROTO, to / PROTO)
    return to


def test_buf_finds_nothing_wrong_with_the_proto_files(tmp_path: Path) -> None:
    shutil.copytree(HERE / "buf", tmp_path, dirs_exist_ok=True)
    run("npm", "ci", "--no-audit", "--no-fund", folder=tmp_path)
    assert run(str(tmp_path / "node_modules/.bin/buf"), "lint", folder=ROOT) == ""


@pytest.fixture(scope="session")
def go(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Go module of one's own, with the programs that its go.mod pins in bin/."""
    folder = folder_with_proto(HERE / "grpc_go", tmp_path_factory.mktemp("go"))
    run("go", "install", "tool", folder=folder, GOBIN=str(folder / "bin"))
    return folder


def test_the_program_for_node_prints_the_answer(there: dict[str, str], tmp_path: Path) -> None:
    folder = folder_with_proto(HERE / "grpc_node", tmp_path)
    run("npm", "ci", "--no-audit", "--no-fund", folder=folder)
    program = block("js", "import grpc").replace(ADDRESS, there["GRPC"])
    (folder / "ask.mjs").write_text(program)
    assert run("node", "ask.mjs", folder=folder) == SAID


def test_the_program_for_go_prints_the_answer(there: dict[str, str], go: Path) -> None:
    generate = command("protoc")
    path = f"{go / 'bin'}{os.pathsep}{os.environ['PATH']}"
    run(sys.executable, "-m", "grpc_tools.protoc", "-I.", *generate[1:], folder=go, PATH=path)
    program = block("go", "package main").replace(ADDRESS, there["GRPC"])
    (go / "main.go").write_text(program)
    assert run("go", "run", ".", folder=go) == SAID


def test_grpcurl_needs_no_file(there: dict[str, str], go: Path) -> None:
    ask = [word.replace(ADDRESS, there["GRPC"]) for word in command("grpcurl")]
    printed = run(str(go / "bin" / "grpcurl"), *ask[1:], folder=go)
    assert re.findall(r'"text": "(.*?)"', printed), printed
    assert "".join(re.findall(r'"text": "(.*?)"', printed)) == SAID
    described = run(
        *(str(go / "bin" / "grpcurl"), "-plaintext", there["GRPC"], "describe"),
        "outrider.protos.v1.GenerateRequest",
        folder=go,
    )
    assert "uint32 max_tokens = 6;" in described
