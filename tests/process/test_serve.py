"""`outrider serve` with real workers, and what a user then does: chat, generate, health, models."""

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
import pytest

from outrider.client import Client
from tests.process.conftest import Folders
from tests.process.service_run import Run, serving_command
from tests.process.workers import ANSWER_SECONDS, START_SECONDS, up_links, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers need Linux here")
OPTIONS = ("--dtype", "fp32", "--context", "512", "--max-running", "2", "--threads", "1")


@pytest.fixture(scope="module")
def run(folders: Folders, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A pair that is served from two folders, at another address of loopback."""
    pair = (str(folders.target), "--draft", str(folders.draft), "--placement", "Separate")
    home = tmp_path_factory.mktemp("home")
    with serving_command(home, "serve", *pair, *OPTIONS, "--host", "127.0.0.2") as run:
        yield run


def typed(run: Run, text: str, *options: str) -> tuple[str, str]:
    """What a chat answers to these lines, and what it says beside."""
    done = run.outrider("chat", "--address", run.address, *options, stdin=text)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_the_options_are_those_of_the_service(run: Run) -> None:
    assert run.address.startswith("127.0.0.2:")
    assert "Serving target." in run.said
    with Client(run.address, timeout=ANSWER_SECONDS) as client:
        wait_until(lambda: bool(up_links(client.state())), START_SECONDS, "the link")
        (model,), engine = client.models(), client.state().engine
    assert (model.name, model.context_length) == ("target", 512)
    assert engine is not None
    assert (engine.dtype, engine.threads, engine.max_running) == ("fp32", 1, 2)


def test_health_version_and_page_are_there(run: Run) -> None:
    base = run.found(r"OpenAI API at (http://127\.0\.0\.2:\d+)/v1\n")
    with httpx.Client(base_url=base, trust_env=False, timeout=ANSWER_SECONDS) as http:
        health, about, page = http.get("/health"), http.get("/version"), http.get("/")
    assert (health.status_code, health.json()) == (200, {"status": "ok"})
    assert about.json() == {"version": version("outrider")}
    assert 'src="page/app.js"' in page.text


def test_a_chat_goes_on_from_what_was_said(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "talk.json"
    lines = f"Hello!\n/draft off\nAnd then?\n/save {file}\n/nonsense\n"
    out, said = typed(run, lines, "--system", "Be brief.", "--max-tokens", "8")
    assert "target, 512 tokens. /help shows the commands" in said
    assert "/nonsense is not allowed; allowed: /help" in said
    messages = json.loads(file.read_text())["messages"]
    assert [one["role"] for one in messages] == ["system", "user", "assistant", "user", "assistant"]
    answers = [one["content"] for one in messages if one["role"] == "assistant"]
    assert out == "".join(f"{answer}\n" for answer in answers)
    figures = [line for line in said.splitlines() if line.startswith("[")]
    assert len(figures) == 2
    assert "acceptance" not in figures[1], "by plain decoding"
    assert f"5 turns are in {file}" not in said
    assert f"4 turns are in {file}" in said


def test_a_chat_without_a_draft_says_the_same(run: Run) -> None:
    asked = ("--seed", "3", "--temperature", "0.7", "--max-tokens", "12")
    assert typed(run, "Hello!\n", *asked)[0] == typed(run, "Hello!\n", *asked, "--no-draft")[0]


def test_a_conversation_that_fills_the_context_is_refused_and_the_chat_goes_on(run: Run) -> None:
    out, said = typed(run, f"{'x' * 600}\n/reset\nHello!\n", "--max-tokens", "4")
    assert "the conversation fills the context of 512 tokens; /reset begins anew" in said
    assert out.count("\n") >= 1


def test_a_chat_with_nobody_is_a_failure(run: Run) -> None:
    done = run.outrider("chat", "--address", "127.0.0.2:1", stdin="Hello!\n")
    assert done.returncode == 1
    assert "127.0.0.2:1" in done.stderr


def test_a_chat_with_a_model_serves_it_and_ends_it(run: Run, folders: Folders) -> None:
    runs = Path(run.environment["HOME"]) / ".cache" / "outrider" / "runs"
    before = set(runs.iterdir())
    pair = (str(folders.target), "--draft", str(folders.draft), "--context", "512")
    done = run.outrider("chat", *pair, "--max-tokens", "8", stdin="Hello!\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert "target, 512 tokens. /help shows the commands" in done.stderr
    assert set(runs.iterdir()) == before, "what failed, or still runs, keeps its folder"


def test_a_chat_with_a_model_that_cannot_be_served_is_a_failure(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["Other"]}')
    done = run.outrider("chat", str(tmp_path), stdin="Hello!\n")
    assert done.returncode in (1, 2)
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("MODEL", "--address", "127.0.0.1:1"), "MODEL is served here; leave out --address"),
        (("--draft", "MODEL"), "--draft, --context and --dtype need MODEL"),
    ],
)
def test_a_chat_is_with_a_model_or_with_an_address(
    run: Run, options: tuple[str, ...], words: str
) -> None:
    done = run.outrider("chat", *options)
    assert (done.returncode, words in done.stderr) == (2, True)


def answer_of(done: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    """The only answer of a command with `--json`."""
    return dict(json.loads(done.stdout)["answers"][0])


def test_generate_reads_a_prompt_from_standard_input(run: Run) -> None:
    asked = ("generate", "--address", run.address, "--max-tokens", "8", "--json")
    by_argument = run.outrider(*asked, "Why is\nthe sky blue?")
    by_stdin = run.outrider(*asked, "-", stdin="Why is\nthe sky blue?\n")
    assert by_argument.returncode == by_stdin.returncode == 0, by_stdin.stderr
    assert answer_of(by_stdin)["text"] == answer_of(by_argument)["text"]


def test_generate_tells_a_system_prompt_and_stops_where_it_is_told(run: Run) -> None:
    asked = ("generate", "--address", run.address, "--max-tokens", "24", "--json", "Hello!")
    plain = answer_of(run.outrider(*asked, "--no-draft"))
    told = answer_of(run.outrider(*asked, "--system", "Be a pirate."))
    assert plain["draft_share"] == 0 or plain["draft_share"] is None
    assert told["text"] != plain["text"]
    stop = plain["text"][3:5]
    stopped = answer_of(run.outrider(*asked, "--stop", stop))
    assert stopped["text"] == plain["text"][: plain["text"].index(stop)]


def test_a_system_prompt_for_a_raw_text_is_refused(run: Run) -> None:
    done = run.outrider("generate", "--address", run.address, "--system", "x", "--raw", "Hello!")
    assert done.returncode == 2
    assert "--system needs a model with a chat template" in done.stderr


def test_the_models_that_are_served_are_listed_and_pulled_again_in_a_moment(
    run: Run, folders: Folders
) -> None:
    listed = json.loads(run.outrider("models", "list", "--json").stdout)["models"]
    pair = {f"file://{folders.target}", f"file://{folders.draft}"}
    assert {uri for one in listed for uri in one["uris"]} == pair
    wide = {"COLUMNS": "300"}  # else a long path is folded, wherever that is
    pulled = run.outrider("models", "pull", str(folders.draft), **wide)
    assert pulled.returncode == 0, pulled.stderr
    assert str(folders.draft) in pulled.stdout
    none = run.outrider("models", "remove", "nothing")
    assert none.returncode == 2
    assert f"\n  file://{folders.draft}\n" in none.stderr
