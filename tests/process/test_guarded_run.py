"""`outrider run` with API keys and TLS, and a certificate that does not name loopback."""

import json
import os
import signal
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from outrider.client import Client, Unauthenticated, Unavailable
from tests.certificate_files import ELSEWHERE_CERT, ELSEWHERE_KEY
from tests.process.conftest import Folders
from tests.process.service_run import Run, serving
from tests.process.workers import ANSWER_SECONDS, PROMPT, START_SECONDS, up_links, wait_until

SERVICE = """
apiVersion: outrider.dev/v1alpha1
kind: SpeculativeService
metadata: {name: tiny}
spec:
  target: {model: {uri: "file://%s"}, engine: {dtype: fp32, maxRunning: 1, maxContext: 256}}
  draft: {model: {uri: "file://%s"}, engine: {dtype: fp32, maxRunning: 1, maxContext: 256},
    placement: Separate}
"""
NAME = "outrider.test"
KEY = "second key"
ROLES = ("target", "draft")
GUARD = ("api_keys_file", "tls_cert", "tls_key")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers need Linux here")


def client(run: Run, key: str | None) -> Client:
    """One that trusts the run's certificate."""
    pem = ELSEWHERE_CERT.read_bytes()
    return Client(run.address, timeout=ANSWER_SECONDS, api_key=key, tls=pem, tls_name=NAME)


def guard(folder: Path) -> tuple[str, ...]:
    keys = folder / "keys"
    keys.write_text(f"first\n\n{KEY}\n")
    return (
        *("--api-keys", str(keys)),
        *("--tls-cert", str(ELSEWHERE_CERT), "--tls-key", str(ELSEWHERE_KEY)),
    )


@pytest.fixture(scope="module")
def run(folders: Folders, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    base = tmp_path_factory.mktemp("guarded")
    file = base / "service.yaml"
    file.write_text(SERVICE % (folders.target, folders.draft))
    with serving(file, base, *guard(base)) as run:
        yield run


def test_grpc_needs_tls_and_a_key(run: Run) -> None:
    with client(run, KEY) as asking:
        assert asking.complete(PROMPT, max_tokens=4, ignore_end=True).token_ids
    for wrong in (None, "third"):
        with client(run, wrong) as asking, pytest.raises(Unauthenticated, match="API keys"):
            asking.state()
    with Client(run.address, timeout=ANSWER_SECONDS) as asking, pytest.raises(Unavailable):
        asking.state()


def test_http_is_printed_with_its_scheme_and_needs_a_key(run: Run) -> None:
    base = run.found(r"OpenAI API at (https://127\.0\.0\.1:\d+/v1)\n")
    context = ssl.create_default_context(cafile=ELSEWHERE_CERT)
    extensions = {"sni_hostname": NAME}
    with httpx.Client(base_url=base, verify=context, trust_env=False, timeout=30.0) as http:
        statuses = [
            http.get("/models", headers=headers, extensions=extensions).status_code
            for headers in ({"Authorization": f"Bearer {KEY}"}, {}, {"Authorization": "Bearer x"})
        ]
    assert statuses == [200, 401, 401]


def test_a_killed_draft_returns_and_the_target_is_told_through_key_and_tls(run: Run) -> None:
    draft = run.found(r"tiny-draft-0 +(\S+),")
    with client(run, "first") as asking:
        wait_until(lambda: up_links(asking.state()) == [draft], START_SECONDS, "the first link")
        before = asking.state().policy.version
        os.kill(run.pid("tiny-draft-0"), signal.SIGKILL)
        wait_until(
            lambda: asking.state().policy.version > before, START_SECONDS, "a policy without it"
        )
        wait_until(lambda: up_links(asking.state()) == [draft], START_SECONDS, "the next link")


def test_the_draft_is_told_of_no_keys(run: Run) -> None:
    (folder,) = (run.folder / ".cache/outrider/runs").iterdir()
    settings = {role: json.loads((folder / f"tiny-{role}-0.json").read_text()) for role in ROLES}
    guarded = {role: [one[key] is not None for key in GUARD] for role, one in settings.items()}
    assert guarded == {"target": [True] * 3, "draft": [False] * 3}


def test_generate_is_let_in_with_the_options_that_run_prints(run: Run) -> None:
    printed = run.found(r"Try: outrider (generate .*) \"Hello!\"\n").split()
    asked = [*printed, PROMPT, "--max-tokens", "3", "--raw", "--json"]
    assert printed[-6:] == [
        *("--api-key-env", "VARIABLE", "--tls-ca", str(ELSEWHERE_CERT), "--tls-name", NAME)
    ]
    done = run.outrider(*asked, VARIABLE=KEY)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["tokens"] > 0
    refused = run.outrider(*asked, VARIABLE="third")
    assert refused.returncode == 2
    assert "--api-key-env" in refused.stderr


def test_top_sees_the_target_through_key_and_tls_and_its_draft_without(run: Run) -> None:
    draft = run.found(r"tiny-draft-0 +(\S+),")
    with client(run, KEY) as asking:
        wait_until(lambda: up_links(asking.state()) == [draft], START_SECONDS, "the link")
    asked = [
        *("top", "--once", "--json", "--interval", "0.1", "--address", run.address),
        *("--tls-ca", str(ELSEWHERE_CERT), "--tls-name", NAME, "--api-key-env", "VARIABLE"),
    ]
    done = run.outrider(*asked, VARIABLE=KEY)
    assert done.returncode == 0, done.stderr
    seen = [(one["address"], one["up"]) for one in json.loads(done.stdout)["workers"]]
    assert seen == [(run.address, True), (draft, True)]
    refused = run.outrider(*asked, VARIABLE="third")
    assert refused.returncode == 1
    assert "API keys" in refused.stderr


def test_a_prompt_is_answered_through_key_and_tls(run: Run, folders: Folders) -> None:
    file = run.folder / "service.yaml"
    done = run.outrider(
        *("run", "-f", str(file), "--prompt", PROMPT, "--max-tokens", "3", "--raw", "--json"),
        *guard(run.folder),
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["tokens"] > 0
