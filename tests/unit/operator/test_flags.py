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
