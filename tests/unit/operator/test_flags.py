"""Flags of the operator that hold more than a word."""

import dataclasses
import datetime
import json
import subprocess
import sys
from pathlib import Path

import pytest

from outrider.operator.__main__ import parse
from outrider.operator.cluster.claims import CLAIM_SECONDS
from outrider.operator.naming import CLAIM_NAME

IMAGE = "--worker-image=worker:1"


def test_labels_of_pod_monitors_are_collected() -> None:
    flags = ("--pod-monitor-label=release=kube", "--pod-monitor-label=team=")
    assert parse([IMAGE, *flags]).monitor_labels == {"release": "kube", "team": ""}


def test_prices_of_gpus_are_collected() -> None:
    flags = ("--gpu-price=nvidia.com/gpu=3.2", "--gpu-price=NVIDIA-L4=1")
    assert parse([IMAGE, *flags]).gpu_prices == {"nvidia.com/gpu": 3.2, "NVIDIA-L4": 1.0}


@pytest.mark.parametrize("word", ["a", "a=", "a=free", "a=0", "a=-1", "a=nan", "a=inf"])
def test_what_is_no_price_is_refused(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse([IMAGE, f"--gpu-price={word}"])
    assert "--gpu-price: " in capsys.readouterr().err


@pytest.mark.parametrize("words", [["release"], ["=kube"], ["a=1", "a=2"]])
def test_what_is_no_label_is_refused_by_name(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse([IMAGE, *(f"--pod-monitor-label={word}" for word in words)])
    assert f"--pod-monitor-label: {words[-1]!r} is not allowed" in capsys.readouterr().err


def test_a_template_for_all_workers_is_read_as_json() -> None:
    options = parse([IMAGE, '--worker-template={"spec": {"runtimeClassName": "nvidia"}}'])
    assert options.pods.template == {"spec": {"runtimeClassName": "nvidia"}}
    assert parse([IMAGE]).pods.template == {}


@pytest.mark.parametrize("text", ["", "[]", "spec: {}", '{"spec": 5}'])
def test_what_is_no_template_is_refused_by_name(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse([IMAGE, f"--worker-template={text}"])
    assert f"--worker-template: {text!r} is not allowed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "host"), [("0.0.0.0:8080", "0.0.0.0"), ("[::]:8080", "::"), ("[::1]:8080", "::1")]
)
def test_the_operator_listens_at_addresses_of_both_families(text: str, host: str) -> None:
    options = parse([IMAGE, f"--listen={text}"])
    assert (options.host, options.port) == (host, 8080)


@pytest.mark.parametrize("text", ["8080", ":::8080", "[::]", "0.0.0.0:70000", "0.0.0.0:0"])
def test_what_is_no_address_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse([IMAGE, f"--listen={text}"])
    assert f"--listen: {text!r} is not allowed" in capsys.readouterr().err


def test_the_user_of_workers_is_fixed_unless_the_platform_gives_one() -> None:
    assert parse([IMAGE]).pods.fixed_user
    assert not parse([IMAGE, "--worker-user=assigned"]).pods.fixed_user


@pytest.mark.parametrize("watched", [[], ["--namespace=a"], ["--namespace=b", "--namespace=a"]])
def test_an_operator_keeps_its_name_as_its_lease_moves_with_what_it_watches(
    watched: list[str],
) -> None:
    found = dataclasses.replace(parse([IMAGE, *watched]), own_namespace="outrider-system")
    assert found.name == "outrider-system/outrider-operator"


def test_an_operator_in_no_pod_is_named_by_its_lease() -> None:
    found = parse([IMAGE, "--namespace=a", "--lease-name=mine"])
    assert dataclasses.replace(found, own_namespace="").name == "a/mine"


def test_a_lease_of_the_name_that_claims_have_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        parse([IMAGE, f"--lease-name={CLAIM_NAME}"])
    assert f"--lease-name: '{CLAIM_NAME}' is not allowed" in capsys.readouterr().err


@pytest.mark.parametrize("seconds", ["7", "61", "300", "15.5"])
def test_a_lease_that_lives_nearly_as_long_as_a_claim_is_refused(
    seconds: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse([IMAGE, f"--lease-seconds={seconds}"])
    words = f"--lease-seconds: {seconds!r} is not allowed; allowed: whole seconds from 8 to 60"
    assert words in capsys.readouterr().err


def test_a_claim_outlives_every_lease() -> None:
    assert parse([IMAGE, "--lease-seconds=60"]).term.lease_seconds * 2 <= CLAIM_SECONDS


def test_an_issuer_of_any_group_is_read() -> None:
    folder = "--peer-folder=/certificates"
    for text, reference in (
        ("ClusterIssuer/mine", {"kind": "ClusterIssuer", "group": "cert-manager.io"}),
        ("Vault.issuers.example.com/mine", {"kind": "Vault", "group": "issuers.example.com"}),
    ):
        options = parse([IMAGE, f"--peer-issuer={text}", folder])
        assert options.issuer is not None
        assert options.issuer.reference == reference | {"name": "mine"}
        assert options.peer_folder == Path("/certificates")
    assert parse([IMAGE]).issuer is None


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--peer-issuer=Issuer/a"], "each needs the other"),
        (["--peer-folder=/c"], "each needs the other"),
        (["--peer-issuer=mine", "--peer-folder=/c"], "--peer-issuer: 'mine' is not allowed"),
        (["--peer-issuer=/mine", "--peer-folder=/c"], "--peer-issuer: '/mine' is not allowed"),
        (
            ["--peer-issuer=Issuer/a", "--peer-folder=/c", "--peer-certificates=off"],
            "nothing is signed",
        ),
    ],
)
def test_half_an_issuer_is_refused(
    flags: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse([IMAGE, *flags])
    assert words in capsys.readouterr().err


LOGGING = """
import logging
from outrider.operator.__main__ import parse
parse(["--worker-image=w:1", "--log-format=json"])
try:
    raise ValueError("two\\nlines")
except ValueError:
    logging.getLogger("outrider.operator.x").exception("chat: %d failed", 2)
"""


def test_logs_are_an_object_a_line_where_that_is_wished() -> None:
    words = (sys.executable, "-c", LOGGING)
    said = subprocess.run(words, capture_output=True, text=True, check=True).stderr
    (line,) = said.splitlines()
    found = json.loads(line)
    assert "ValueError: two\nlines" in found.pop("exc_info")
    assert datetime.datetime.fromisoformat(found.pop("time")).tzinfo
    assert found == {
        "level": "ERROR",
        "logger": "outrider.operator.x",
        "message": "chat: 2 failed",
    }
