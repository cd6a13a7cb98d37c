"""What a Prometheus says of pods: the query, and the samples that an answer holds."""

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from outrider.contract.settings import Role
from outrider.operator.control import prometheus
from outrider.operator.control.exposition import parse
from outrider.operator.control.prometheus import (
    ASKED,
    PrometheusError,
    ScrapedPod,
    SeriesLabels,
    query,
    read,
)
from outrider.operator.control.samples import DraftSample, TargetSample
from tests.unit.operator.control.test_exposition import GOOD

TARGET = ScrapedPod("uid-t", "chat-target-a", Role.TARGET, made_at=1000.0)
DRAFT = ScrapedPod("uid-d", "chat-draft-b", Role.DRAFT, made_at=1000.0)
LABELS = SeriesLabels()
NOW = 2000.0
LINE = re.compile(r"(?P<name>\w+)\{(?P<labels>.*)\} (?P<value>\S+)$")
DRAFT_TEXT = """\
outrider_draft_sessions{role="draft"} 4
outrider_kv_cache_usage_perc{role="draft"} 0.5
"""


def stored(
    text: str, pod: ScrapedPod, times: Iterable[float], **labels: str
) -> list[dict[str, Any]]:
    """What a Prometheus keeps of a pod's `/metrics` that it read at these times."""
    found = filter(None, map(LINE.match, text.splitlines()))
    return [
        {
            "metric": {
                "__name__": line["name"],
                **dict(re.findall(r'(\w+)="([^"]*)"', line["labels"])),
                "namespace": "default",
                "pod": pod.name,
                "instance": "10.0.0.1:8000",
                **labels,
            },
            "values": [[at, line["value"]] for at in times],
        }
        for line in found
        if line["name"] in ASKED
    ]


def body(*series: dict[str, Any], **more: Any) -> bytes:
    data = {"resultType": "matrix", "result": list(series)}
    return json.dumps({"status": "success", "data": data, **more}).encode()


def only(answer: prometheus.Answer) -> TargetSample:
    (sample,) = answer.samples
    assert isinstance(sample, TargetSample)
    return sample


def test_a_query_names_the_pods_their_namespace_and_what_the_loop_reads() -> None:
    labels = SeriesLabels(namespace="ns", pod="pod_name", others=(("cluster", 'a"b\\'),))
    text = query("default", [TARGET, DRAFT], labels, 60)
    assert text.startswith(r'{ns="default",cluster="a\"b\\",__name__=~"outrider_')
    assert text.endswith(',pod_name=~"chat-draft-b|chat-target-a"}[60s]')
    assert set(re.findall(r"outrider_\w+", text)) == ASKED


def test_dots_of_a_pod_s_name_are_dots() -> None:
    dotted = ScrapedPod("u", "chat.a", Role.TARGET, 0.0)
    assert r'pod=~"chat\\.a"' in query("default", [dotted], LABELS, 60)


def test_a_sample_is_that_of_the_text_at_the_time_of_the_newest_scrape() -> None:
    series = stored(GOOD, TARGET, [1970.0, 1985.0])
    found = read(body(*series), [TARGET], LABELS, NOW)
    linked = parse(GOOD, "uid-t", 1985.0)
    assert isinstance(linked, TargetSample)
    assert only(found).at == 1985.0
    assert only(found).counters == linked.counters
    assert (only(found).waiting, only(found).kv_usage, only(found).drafting) == (3, 0.25, "on")
    assert found.problems == {}


def test_a_draft_in_its_target_s_pod_is_told_from_it_by_its_role() -> None:
    series = stored(GOOD, TARGET, [1990.0]) + stored(DRAFT_TEXT, TARGET, [1991.0])
    assert only(read(body(*series), [TARGET], LABELS, NOW)).at == 1990.0
    series = stored(DRAFT_TEXT, DRAFT, [1991.0])
    (sample,) = read(body(*series), [DRAFT], LABELS, NOW).samples
    assert sample == DraftSample(uid="uid-d", at=1991.0, sessions=4, kv_usage=0.5)


def test_of_a_scrape_that_has_come_in_part_the_one_before_counts() -> None:
    whole, *rest = stored(GOOD, TARGET, [1970.0, 1985.0])
    for one in rest:
        one["values"].pop()
    assert only(read(body(whole, *rest), [TARGET], LABELS, NOW)).at == 1970.0


def test_two_that_scrape_one_pod_are_kept_apart_and_the_newer_scrape_counts() -> None:
    series = stored(GOOD, TARGET, [1985.0], replica="a")
    assert " 100\n" in GOOD
    series += stored(GOOD.replace(" 100\n", " 40\n"), TARGET, [1980.0, 1984.0], replica="b")
    assert only(read(body(*series), [TARGET], LABELS, NOW)).counters.passes == 100


def test_what_was_scraped_before_a_pod_was_made_is_of_another_of_its_name() -> None:
    series = stored(GOOD, TARGET, [990.0, 999.0])
    found = read(body(*series), [TARGET], LABELS, NOW)
    assert found.samples == ()
    assert found.problems == {"chat-target-a": "Prometheus has no scrape of it that is new enough"}


def test_a_pod_that_is_not_scraped_is_named_and_the_others_count() -> None:
    series = stored(GOOD, TARGET, [1990.0])
    found = read(body(*series), [TARGET, DRAFT], LABELS, NOW)
    assert only(found).uid == "uid-t"
    assert list(found.problems) == ["chat-draft-b"]


@pytest.mark.parametrize(("ahead", "at"), [(3.0, NOW), (30.0, None)])
def test_a_clock_that_is_far_ahead_is_named_and_one_that_is_a_little_is_not(
    ahead: float, at: float | None
) -> None:
    found = read(body(*stored(GOOD, TARGET, [NOW + ahead])), [TARGET], LABELS, NOW)
    if at is None:
        assert found.samples == ()
        assert "30 s in the future" in found.problems["chat-target-a"]
    else:
        assert only(found).at == at


def changed(name: str, value: str) -> Callable[[dict[str, Any]], None]:
    def change(one: dict[str, Any]) -> None:
        if one["metric"]["__name__"] == name:
            one["values"] = [[at, value] for at, _ in one["values"]]

    return change


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "many"])
def test_an_implausible_value_is_named(value: str) -> None:
    series = stored(GOOD, TARGET, [1990.0])
    for one in series:
        changed("outrider_verify_passes_total", value)(one)
    found = read(body(*series), [TARGET], LABELS, NOW)
    assert found.samples == ()
    assert found.problems["chat-target-a"].startswith("outrider_verify_passes_total: ")


def test_labels_are_the_service_s_to_name() -> None:
    series = stored(GOOD, TARGET, [1990.0])
    for one in series:
        one["metric"]["kubernetes_pod_name"] = one["metric"].pop("pod")
    labels = SeriesLabels(pod="kubernetes_pod_name")
    assert only(read(body(*series), [TARGET], labels, NOW)).at == 1990.0
    assert read(body(*series), [TARGET], LABELS, NOW).samples == ()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"<html>", "no answer of a Prometheus: the answer: Invalid JSON"),
        (b'{"status": "success"}', "its status is 'success'"),
        (b'{"status": "error", "error": "too many samples"}', "too many samples"),
        (
            b'{"status": "success", "data": {"resultType": "vector", "result": []}}',
            "no answer of a Prometheus: data.resultType: ",
        ),
        (body(warnings=["store 3 did not answer"]), "nothing was found: store 3 did not answer"),
    ],
)
def test_an_answer_that_says_nothing_is_an_error(answer: bytes, words: str) -> None:
    with pytest.raises(PrometheusError, match=re.escape(words)):
        read(answer, [TARGET], LABELS, NOW)
