"""Flags of the operator that hold more than a word."""

import pytest

from outrider.operator.__main__ import parse

IMAGE = "--worker-image=worker:1"


def test_labels_of_pod_monitors_are_collected() -> None:
    flags = ("--pod-monitor-label=release=kube", "--pod-monitor-label=team=")
    assert parse([IMAGE, *flags]).monitor_labels == {"release": "kube", "team": ""}


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


def test_the_user_of_workers_is_fixed_unless_the_platform_gives_one() -> None:
    assert parse([IMAGE]).pods.fixed_user
    assert not parse([IMAGE, "--worker-user=assigned"]).pods.fixed_user
