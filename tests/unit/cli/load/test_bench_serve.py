"""`outrider bench serve` loads a real server on loopback and reports what it met."""

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from outrider.cli.app import app, exit_with_words
from tests.certificate_files import ELSEWHERE_CERT, LOOPBACK_CERT
from tests.loopback_endpoint import KEY, LoopbackEndpoint, Way


def serve(capsys: pytest.CaptureFixture[str], url: str, *options: str) -> tuple[int, str, str]:
    status = 0
    try:
        exit_with_words(
            lambda: app(["bench", "serve", "--url", url, *options], standalone_mode=False)
        )
    except SystemExit as end:
        status = int(end.code or 0)
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return status, captured.out, captured.err


def measured(
    capsys: pytest.CaptureFixture[str], url: str, *options: str, status: int = 0
) -> dict[str, Any]:
    ended, out, err = serve(capsys, url, "--json", *options)
    assert ended == status, err
    figures: dict[str, Any] = json.loads(out)
    return figures


def every(number: int, way: Way) -> Any:
    return lambda at: way if at % number == 0 else Way.WELL


@pytest.mark.parametrize(
    "pace",
    [
        ("--concurrency", "3"),
        ("--rate", "200"),
    ],
)
def test_every_request_is_sent_and_counted(
    capsys: pytest.CaptureFixture[str], pace: tuple[str, ...]
) -> None:
    with LoopbackEndpoint() as endpoint:
        run = measured(capsys, endpoint.url, *pace, "--requests", "12")
    assert (run["sent"], run["completed"], len(endpoint.bodies)) == (12, 12, 12)
    assert run["completion_tokens"] == 12 * 8
    assert (run["draft_rows"], run["accepted_rows"]) == (84, 48)
    assert run["prompt_tokens"] == 84
    assert run["tokens_reported"] is True
    assert run["ttft"]["n"] == run["latency"]["n"] == run["tpot"]["n"] == 12
    assert run["itl"]["n"] == 12 * 3
    assert 0 < run["ttft"]["p50"] <= run["latency"]["p99"]


def test_a_slow_stream_shows_in_its_latencies(capsys: pytest.CaptureFixture[str]) -> None:
    with LoopbackEndpoint(pause=0.05) as endpoint:
        run = measured(capsys, endpoint.url, "--concurrency", "1", "--requests", "2")
    assert run["ttft"]["p50"] >= 0.04
    assert run["itl"]["mean"] >= 0.04
    assert run["tpot"]["mean"] == pytest.approx(run["itl"]["mean"] * 3 / 7)
    assert run["latency"]["p50"] >= 0.16


def test_the_request_says_what_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--concurrency", "1", "--requests", "1", "--max-tokens", "5")
    body = '{"temperature": 0.5, "top_p": 0.9, "ignore_eos": true}'
    with LoopbackEndpoint() as endpoint:
        measured(capsys, endpoint.url, *options, "--body", body)
    [asked] = endpoint.bodies
    assert asked["model"] == "tiny"
    assert (asked["max_tokens"], asked["temperature"], asked["ignore_eos"]) == (5, 0.5, True)
    assert (asked["top_p"], asked["stream_options"]) == (0.9, {"include_usage": True})
    assert asked["messages"][-1]["role"] == "user"


def test_the_same_seed_asks_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    asked = []
    for seed in ("1", "1", "2"):
        with LoopbackEndpoint() as endpoint:
            measured(capsys, endpoint.url, "--concurrency", "1", "--requests", "3", "--seed", seed)
        asked.append(endpoint.bodies)
    assert asked[0] == asked[1]
    assert asked[0] != asked[2]


def test_own_prompts_are_sent(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "own.jsonl").write_text('{"prompt": "Hi", "max_tokens": 3}')
    options = ("--concurrency", "1", "--requests", "1", "--prompts", str(tmp_path / "own.jsonl"))
    with LoopbackEndpoint() as endpoint:
        measured(capsys, endpoint.url, *options)
    assert endpoint.bodies[0]["messages"] == [{"role": "user", "content": "Hi"}]
    assert endpoint.bodies[0]["max_tokens"] == 3


def test_rejected_requests_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    with LoopbackEndpoint(ways=every(3, Way.REJECT)) as endpoint:
        run = measured(capsys, endpoint.url, "--concurrency", "1", "--requests", "9")
    assert (run["completed"], run["rejected"]) == (6, 3)


def test_only_rejections_are_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    with LoopbackEndpoint(ways=every(1, Way.REJECT)) as endpoint:
        ended = serve(capsys, endpoint.url, "--concurrency", "1", "--requests", "2")
    assert ended[0] == 1
    assert "2 were rejected (HTTP 429)" in ended[2]


@pytest.mark.parametrize(
    ("way", "problem"),
    [
        (Way.BREAK, "the stream ended before the answer did"),
        (Way.ERROR, "error in the stream: worker lost"),
        (Way.GARBAGE, "an event that is no chat completion chunk: {not json"),
        (Way.REFUSE, "HTTP 400: max_tokens is too large"),
    ],
)
def test_failures_are_counted_with_their_reason(
    capsys: pytest.CaptureFixture[str], way: Way, problem: str
) -> None:
    with LoopbackEndpoint(ways=every(2, way)) as endpoint:
        run = measured(capsys, endpoint.url, "--concurrency", "2", "--requests", "6")
    assert (run["completed"], run["failed"]) == (3, 3)
    assert run["problems"] == {problem: 3}


def test_without_usage_chunks_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    with LoopbackEndpoint(usage=False) as endpoint:
        status, out, _ = serve(capsys, endpoint.url, "--concurrency", "1", "--requests", "2")
    assert status == 0
    assert "reports no usage" in out


def test_wrong_text_is_found_and_fails_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--check-text", "--concurrency", "1", "--requests", "70")
    with LoopbackEndpoint(ways=lambda at: Way.WRONG if at == 64 else Way.WELL) as endpoint:
        status, out, err = serve(capsys, endpoint.url, *options)
    assert (status, err.split(": ")[:2]) == (1, ["outrider", "--check-text"])
    assert "38 answers compared with the first to a prompt: 1 differ" in out


def test_a_check_that_compares_nothing_fails(capsys: pytest.CaptureFixture[str]) -> None:
    with LoopbackEndpoint() as endpoint:
        options = ("--check-text", "--concurrency", "1", "--requests", "8")
        status, _, err = serve(capsys, endpoint.url, *options)
    assert (status, "was answered twice" in err) == (1, True)


def test_right_text_passes_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--check-text", "--concurrency", "4", "--requests", "70")
    with LoopbackEndpoint() as endpoint:
        run = measured(capsys, endpoint.url, *options)
    assert run["texts"] == {"compared": 38, "differences": []}


def test_the_table_has_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--concurrency", "2", "--requests", "4")
    with LoopbackEndpoint() as endpoint:
        status, out, _ = serve(capsys, endpoint.url, *options)
    assert status == 0
    figures = ("completed", "rejected", "p99", "inter-token", "first token", "latency")
    assert [one for one in figures if one not in out] == []


def test_figures_have_their_command_and_machine(capsys: pytest.CaptureFixture[str]) -> None:
    with LoopbackEndpoint() as endpoint:
        run = measured(capsys, endpoint.url, "--rate", "100", "--requests", "3")
    assert run["command"].split()[0] == "outrider"
    assert run.keys() >= {"machine", "date", "load_average"}


def test_a_run_lasts_as_long_as_asked(capsys: pytest.CaptureFixture[str]) -> None:
    with LoopbackEndpoint(pause=0.01) as endpoint:
        run = measured(capsys, endpoint.url, "--concurrency", "1", "--seconds", "0.5")
        at_rate = measured(capsys, endpoint.url, "--rate", "20", "--seconds", "0.5")
    assert run["duration"] >= 0.5
    assert run["completed"] == run["sent"] >= 1
    assert at_rate["completed"] == at_rate["sent"] >= 1


def test_ctrl_c_ends_a_run_early_and_reports_it() -> None:
    code = "from outrider.cli.app import main; main()"
    with LoopbackEndpoint(ways=lambda at: Way.STALL if at else Way.WELL) as endpoint:
        options = ["--url", endpoint.url, "--concurrency", "1", "--json"]
        process = subprocess.Popen(
            [sys.executable, "-c", code, "bench", "serve", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with process:
            assert endpoint.second.wait(120)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=120)
    run = json.loads(out)
    assert (run["completed"], run["interrupted"]) == (1, 1)
    assert process.returncode == 130
    assert "Traceback" not in err


def test_a_refused_key_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_KEY", KEY)
    one = ("--concurrency", "1", "--requests", "1")
    with LoopbackEndpoint(needs_key=True) as endpoint:
        status, out, err = serve(capsys, endpoint.url, *one)
        measured(capsys, endpoint.url, *one, "--api-key-env", "THE_KEY")
    assert (status, out) == (2, "")
    assert err.startswith(f"outrider: --url {endpoint.url} ")
    assert "refuses requests without --api-key-env (HTTP 401)" in err


@pytest.mark.parametrize(
    ("models", "model", "words"),
    [
        (("a", "b"), None, "--model is needed at {url}; allowed: a, b"),
        (("a", "b"), "c", "--model c is not served at {url}; allowed: a, b"),
    ],
)
def test_a_model_that_is_not_served_is_named(
    capsys: pytest.CaptureFixture[str], models: tuple[str, ...], model: str | None, words: str
) -> None:
    options = ("--model", model) if model else ()
    with LoopbackEndpoint(models=models) as endpoint:
        status, out, err = serve(capsys, endpoint.url, "--concurrency", "1", *options)
    assert (status, out) == (2, "")
    assert err == f"outrider: {words.format(url=endpoint.url)}\n"


def test_an_address_without_an_api_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with LoopbackEndpoint() as endpoint:
        base = endpoint.url.removesuffix("/v1")
        status, _, err = serve(capsys, base, "--concurrency", "1")
    assert status == 2
    assert err.startswith(f"outrider: --url {base}: {base}/models answers HTTP 404 and no list")


def test_an_endpoint_that_does_not_answer_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"
    status, out, err = serve(capsys, url, "--concurrency", "1")
    assert (status, out) == (1, "")
    assert err.startswith(f"outrider: --url {url}: nothing answers there (")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "give --rate R for requests a second, or --concurrency N"),
        (("--rate", "1", "--concurrency", "1"), "give --rate R for requests a second, or"),
        (("--rate", "1", "--body", "[1]"), "--body [1]: allowed: a JSON object"),
        (("--rate", "1", "--api-key-env", "NO_SUCH"), "--api-key-env NO_SUCH: this environment"),
        (("--rate", "1", "--prompts", "nowhere"), "--prompts nowhere: No such file"),
        (("--rate", "1", "--url", "127.0.0.1:8000"), "--url 127.0.0.1:8000: allowed: http://"),
        (("--rate", "1", "--url", "http://a:b@c/v1"), "--url http://a:b@c/v1: allowed: http://"),
    ],
)
def test_bad_options_are_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], options: tuple[str, ...], words: str
) -> None:
    status, out, err = serve(capsys, "http://127.0.0.1:1/v1", *options)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"outrider: {words}")


def test_an_endpoint_with_tls_is_loaded_only_if_its_certificate_is_trusted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    one = ("--concurrency", "1", "--requests", "1")
    with LoopbackEndpoint(tls=True) as endpoint:
        run = measured(capsys, endpoint.url, *one, "--tls-ca", str(LOOPBACK_CERT))
        assert run["completed"] == 1
        for other in ((), ("--tls-ca", str(ELSEWHERE_CERT))):
            status, _, words = serve(capsys, endpoint.url, *one, *other)
            assert status == 1
            assert "CERTIFICATE_VERIFY_FAILED" in words
        assert len(endpoint.bodies) == 1


def test_roots_without_tls_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--tls-ca", str(LOOPBACK_CERT), "--concurrency", "1")
    status, _, words = serve(capsys, "http://127.0.0.1:9/v1", *options)
    assert status == 2
    assert f"--tls-ca {LOOPBACK_CERT} needs a --url of https" in words
