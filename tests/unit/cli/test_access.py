"""What a run's own calls bring, and what is said of files that cannot be used."""

import asyncio
import dataclasses
from pathlib import Path

import pytest

from outrider.cli.access import (
    Certificate,
    TargetAccess,
    access_from,
    access_to,
    current_access,
    key_from,
    roots,
)
from outrider.cli.app import app, exit_with_words
from outrider.cli.failures import BadInput
from outrider.cli.run.run import RunOptions, run
from outrider.operator.plan import PlanOptions
from outrider.operator.spec import load
from tests.certificate_files import (
    ELSEWHERE_CERT,
    ELSEWHERE_KEY,
    LOCKED_KEY,
    LOOPBACK_CERT,
    LOOPBACK_KEY,
)

SERVICE = """
apiVersion: outrider.dev/v1alpha1
kind: SpeculativeService
metadata: {name: a}
spec: {target: {model: {uri: "file:///nowhere"}}}
"""


def options(
    keys: Path | None = None, cert: Path | None = None, key: Path | None = None
) -> PlanOptions:
    keys_file, tls_cert, tls_key = (str(one) if one else None for one in (keys, cert, key))
    return PlanOptions(api_keys_file=keys_file, tls_cert=tls_cert, tls_key=tls_key)


def test_a_target_without_files_wants_nothing() -> None:
    assert access_to(options()) == TargetAccess()


def test_the_first_key_is_brought_as_the_file_is_now(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    for text, first in (("\n one \ntwo\n", "one"), ("three\none\n", "three")):
        file.write_text(text)
        assert access_to(options(file)).api_key == first


def test_a_client_made_later_brings_the_key_of_then(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("one\n")
    guard = options(file, ELSEWHERE_CERT, ELSEWHERE_KEY)
    access = access_to(guard)
    file.write_text("two\n")
    later = current_access(access, guard)
    assert later == dataclasses.replace(access, api_key="two")
    file.unlink()
    assert current_access(later, guard) == later
    assert current_access(TargetAccess(), options()) == TargetAccess()


def test_a_client_made_later_trusts_the_certificate_of_then(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert", tmp_path / "key"
    for given, file in ((ELSEWHERE_CERT, cert), (ELSEWHERE_KEY, key)):
        file.write_bytes(given.read_bytes())
    access = access_to(options(cert=cert, key=key))
    for given, file in ((LOOPBACK_CERT, cert), (LOOPBACK_KEY, key)):
        file.write_bytes(given.read_bytes())
        later = current_access(access, options(cert=cert, key=key))
        assert (later == access) is (file == cert), "half of a pair is none"
    assert later.tls_name == "localhost"


def test_a_certificate_is_trusted_under_its_own_first_name() -> None:
    access = access_to(options(cert=ELSEWHERE_CERT, key=ELSEWHERE_KEY))
    assert (access.tls, access.tls_name) == (ELSEWHERE_CERT.read_bytes(), "outrider.test")
    assert access.scheme == "https"


def test_a_certificate_tells_all_its_names_and_only_itself(tmp_path: Path) -> None:
    chain = tmp_path / "chain.pem"
    chain.write_bytes(LOOPBACK_CERT.read_bytes() + ELSEWHERE_CERT.read_bytes())
    read = Certificate.read(str(chain), str(LOOPBACK_KEY))
    assert read.names == ("localhost", "127.0.0.1")
    assert read.pem == LOOPBACK_CERT.read_bytes()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file or directory; allowed: a file with one key a line"),
        (b"", "it holds no key; allowed: a file with one key a line"),
        (b" \n\n", "it holds no key; allowed: a file with one key a line"),
        (b"\xff", "not UTF-8 text; allowed: a file with one key a line"),
        ("a\nä\n".encode(), "key 2 has characters that no header can hold; allowed: printable"),
    ],
)
def test_a_file_of_keys_that_cannot_be_used_is_named(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
    file = tmp_path / "keys"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(BadInput) as refusal:
        access_to(options(file))
    assert str(refusal.value).startswith(f"--api-keys {file}: {words}")


@pytest.mark.parametrize(
    ("cert", "key", "words"),
    [
        (LOOPBACK_CERT, None, f"--tls-cert {LOOPBACK_CERT} needs --tls-key FILE; allowed: both"),
        (None, LOOPBACK_KEY, f"--tls-key {LOOPBACK_KEY} needs --tls-cert FILE; allowed: both"),
        (Path("no"), LOOPBACK_KEY, "--tls-cert no: No such file or directory; allowed: a PEM"),
        (LOOPBACK_CERT, Path("no"), "--tls-key no: No such file or directory; allowed: a PEM"),
        (LOOPBACK_CERT, ELSEWHERE_KEY, f"--tls-cert {LOOPBACK_CERT}, --tls-key {ELSEWHERE_KEY}: "),
        (LOOPBACK_CERT, LOCKED_KEY, f"--tls-cert {LOOPBACK_CERT}, --tls-key {LOCKED_KEY}: the "),
        (LOOPBACK_KEY, LOOPBACK_KEY, f"--tls-cert {LOOPBACK_KEY}, --tls-key {LOOPBACK_KEY}: "),
    ],
)
def test_a_certificate_and_key_that_cannot_be_used_are_named(
    cert: Path | None, key: Path | None, words: str
) -> None:
    with pytest.raises(BadInput) as refusal:
        access_to(options(cert=cert, key=key))
    assert str(refusal.value).startswith(words)
    assert "allowed: " in str(refusal.value)


def test_a_run_refuses_its_files_before_anything_else(tmp_path: Path) -> None:
    guarded = options(tmp_path / "keys")
    with pytest.raises(BadInput, match="--api-keys"):
        asyncio.run(run(RunOptions(service=load(SERVICE), plan=guarded)))


@pytest.mark.parametrize(
    ("given", "missing"),
    [((), "--api-keys FILE, --tls-cert FILE, "), (("keys",), "--tls-cert FILE, ")],
)
def test_beyond_loopback_a_run_needs_keys_and_a_certificate(
    tmp_path: Path, given: tuple[str, ...], missing: str
) -> None:
    (tmp_path / "keys").write_text("one\n")
    plan = options(*(tmp_path / name for name in given))
    words = rf"^--host 0\.0\.0\.0: .* it needs {missing}--tls-key FILE; without .*: 127\.0\.0\.1$"
    with pytest.raises(BadInput, match=words):
        asyncio.run(run(RunOptions(service=load(SERVICE), plan=plan, host="0.0.0.0")))


def test_an_environment_variable_without_a_key_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KEY", raising=False)
    assert key_from(None) is None
    for value, words in (("", "not set or empty"), ("a\nb", "printable ASCII")):
        monkeypatch.setenv("KEY", value)
        with pytest.raises(BadInput, match=f"--api-key-env KEY: .*{words}"):
            key_from("KEY")
    monkeypatch.setenv("KEY", "a b")
    assert key_from("KEY") == "a b"


@pytest.mark.parametrize("command", [["generate", "x"], ["top", "--once"]])
def test_each_command_wants_the_key_that_it_is_told_of(
    command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(SystemExit) as end:
        exit_with_words(lambda: app([*command, "--api-key-env", "NO_SUCH_KEY"]))
    assert end.value.code == 2
    assert "--api-key-env NO_SUCH_KEY: this environment variable" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("roots", "expected"),
    [(None, False), ("system", True), (str(LOOPBACK_CERT), LOOPBACK_CERT.read_bytes())],
)
def test_roots_mean_tls(roots: str | None, expected: bool | bytes) -> None:
    assert access_from(None, roots, None) == TargetAccess(tls=expected)


@pytest.mark.parametrize("content", [None, b"", b"no certificate", b"\xff"])
def test_roots_that_are_no_certificates_are_named(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "roots"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(BadInput, match=r"--tls-ca .*: .*allowed: a PEM file of certificates"):
        roots(file)


@pytest.mark.parametrize("command", [["generate", "x"], ["top", "--once"]])
def test_a_name_needs_tls(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        exit_with_words(lambda: app([*command, "--tls-name", "a"]))
    assert end.value.code == 2
    assert "--tls-name a needs --tls-ca FILE or --tls-ca system." in capsys.readouterr().err


def test_roots_may_have_comments_in_any_language(tmp_path: Path) -> None:
    file = tmp_path / "roots"
    file.write_bytes("# Főtanúsítvány\n".encode() + LOOPBACK_CERT.read_bytes())
    assert roots(file) == file.read_bytes()
