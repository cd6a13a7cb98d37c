"""Windows: what two looks at several pods come to."""

import pytest

from outrider.operator.control.evidence import GainWindow
from outrider.operator.control.samples import Sample, Window
from outrider.operator.control.scrapes import Scrapes
from tests.unit.operator.control.made import draft, target


def between(
    earlier: list[Sample], later: list[Sample], ready: str = "t0", now: float = 15.0
) -> Window | None:
    ends = ({sample.uid: sample for sample in scraped} for scraped in (earlier, later))
    return Scrapes(*ends).window(ready.split(), now, 60)


def test_counters_of_several_pods_are_summed_before_anything_is_divided() -> None:
    earlier: list[Sample] = [target("t0"), target("t1", plain_seconds=5, spent_seconds=5)]
    later: list[Sample] = [
        target("t0", 15, plain_seconds=1, spent_seconds=2, waiting=4, kv_usage=0.2),
        target("t1", 15, plain_seconds=35, spent_seconds=23, waiting=2, kv_usage=0.6),
    ]
    found = between(earlier, later, "t0 t1")
    assert found is not None
    assert found.gain_percent == pytest.approx(100 * 31 / 20)
    assert (found.waiting, found.waiting_per_target) == (6, 3)
    assert found.kv_usage == 0.6


def test_what_local_sources_brought_is_no_gain_of_drafts() -> None:
    later = target(at=15, plain_seconds=19, spent_seconds=10)
    sourced = target(
        at=15, plain_seconds=19, spent_seconds=10, local_plain_seconds=11, local_spent_seconds=2
    )
    gains = []
    for sample in (later, sourced):
        found = between([target()], [sample])
        assert found is not None
        gains.append(found.gain_percent)
    assert gains == [pytest.approx(190), pytest.approx(100)]


def test_a_restarted_pod_counts_from_0_in_all_its_counters() -> None:
    earlier: list[Sample] = [target(plain_seconds=5, spent_seconds=100, passes=10)]
    later: list[Sample] = [target(at=15, plain_seconds=6, spent_seconds=4, passes=30)]
    found = between(earlier, later)
    assert found is not None
    assert (found.counters.plain_seconds, found.counters.spent_seconds) == (6, 4)
    assert found.counters.passes == 30


def test_a_pod_seen_only_at_one_end_counts_nothing_and_shows_its_gauges() -> None:
    earlier: list[Sample] = [target("t0"), target("gone", passes=500)]
    later: list[Sample] = [
        target("t0", 15, passes=10),
        target("new", 15, passes=1000, waiting=8),
    ]
    found = between(earlier, later, "t0 new")
    assert found is not None
    assert found.counters.passes == 10
    assert (found.targets, found.waiting) == (2, 8)


@pytest.mark.parametrize(
    ("earlier", "later", "ready"),
    [
        ([target()], [target(at=15)], ""),
        ([target()], [], "t0"),
        ([], [target(at=15)], "t0"),
        ([target()], [target(at=15)], "t0 t1 t2"),
        ([target(at=-100)], [target(at=-46)], "t0"),
        ([target(at=15)], [target(at=15)], "t0"),
        ([draft("t0")], [draft("t0", at=15)], "t0"),
    ],
    ids=[
        "no target",
        "gone",
        "one look",
        "two of three missing",
        "stale",
        "same sample",
        "a draft",
    ],
)
def test_what_is_missing_or_stale_is_not_known_rather_than_no_load(
    earlier: list[Sample], later: list[Sample], ready: str
) -> None:
    assert between(earlier, later, ready) is None


@pytest.mark.parametrize("silent", [[], [target("t1", -46, waiting=90)]], ids=["gone", "stale"])
def test_half_of_the_targets_speak_for_all_and_the_silent_ones_are_counted(
    silent: list[Sample],
) -> None:
    later: list[Sample] = [target("t0", 15, waiting=3, running=2, passes=100), *silent]
    found = between([target("t0"), *silent], later, "t0 t1")
    assert found is not None
    assert (found.targets, found.silent, found.counters.passes) == (2, 1, 100)
    assert (found.waiting_per_target, found.running) == (3, 4)


def quiet_since(*scrapes: list[Sample]) -> float | None:
    seen = Scrapes()
    for number, scraped in enumerate(scrapes):
        seen = seen.add(scraped, {"t0", "t1"}, 15.0 * number)
    return seen.quiet_since


def test_targets_are_quiet_from_the_first_scrape_that_shows_no_work() -> None:
    rest: list[Sample] = [target("t0", 15, running=0, passes=900)]
    then: list[Sample] = [target("t0", 30, running=0, passes=949)]
    last: list[Sample] = [target("t0", 45, running=0, passes=949)]
    assert quiet_since([target("t0", 0, passes=900)]) is None
    assert quiet_since([target("t0", 0, passes=900)], rest) == 15
    assert quiet_since([target("t0", 0, passes=900)], rest, then, last) == 15


@pytest.mark.parametrize(
    "busy",
    [
        target("t0", 30, running=1, passes=900),
        target("t0", 30, running=0, waiting=1, passes=900),
        target("t0", 30, running=0, passes=950),
    ],
    ids=["a request runs", "a request waits", "passes ran"],
)
def test_work_of_any_target_ends_the_quiet(busy: Sample) -> None:
    rest: list[Sample] = [target("t0", 15, running=0, passes=900)]
    assert quiet_since([target("t0", 0, passes=900)], rest, [busy]) is None


def test_a_target_that_did_not_answer_shows_later_what_it_did_meanwhile() -> None:
    first: list[Sample] = [target("t0", 0, running=0), target("t1", 0, running=0)]
    one: list[Sample] = [target("t0", 15, running=0)]
    worked: list[Sample] = [target("t0", 45, running=0), target("t1", 45, running=0, passes=80)]
    assert quiet_since(first, one, []) == 15
    assert quiet_since(first, one, [], worked) is None


def test_a_sample_is_fresh_until_it_is_too_old() -> None:
    assert between([target(at=-100)], [target(at=-45)]) is not None


def test_windows_of_pods_asked_one_after_another_follow_each_other() -> None:
    first: list[Sample] = [target("t0", 0.1), target("t1", 0.7)]
    second: list[Sample] = [target("t0", 15.1), target("t1", 15.7)]
    third: list[Sample] = [target("t0", 30.1), target("t1", 30.7)]
    one, two = between(first, second, "t0 t1"), between(second, third, "t0 t1", 31)
    assert one is not None
    assert two is not None
    assert two.began == one.ended


def gains(*scrapes: list[Sample]) -> tuple[GainWindow, ...]:
    seen = Scrapes()
    for number, scraped in enumerate(scrapes):
        seen = seen.add(scraped, {"t0", "t1"}, 15.0 * number)
    return seen.gains


def test_the_gain_over_all_targets_is_by_their_seconds_and_not_by_their_requests() -> None:
    first: list[Sample] = [target("t0"), target("t1")]
    light = target("t0", 15, plain_seconds=17, spent_seconds=10, passes=10)
    loaded = target("t1", 15, plain_seconds=10, spent_seconds=10, passes=900, running=24)
    (found,) = gains(first, [light, loaded])
    assert (found.began, found.ended, found.seconds) == (0, 15, 20)
    assert found.gain == pytest.approx(1.35)


def test_windows_without_work_or_without_a_link_are_no_evidence() -> None:
    work = {"plain_seconds": 9, "spent_seconds": 10}
    assert gains([target("t0")], [target("t0", 15)]) == ()
    assert gains([target("t0")], [target("t0", 15, links_up=0, **work)]) == ()
    assert len(gains([target("t0")], [target("t0", 15, **work)], [target("t0", 30, **work)])) == 1


@pytest.mark.parametrize(("guesses", "used"), [(0, False), (10, False), (11, True)])
def test_drafts_are_used_where_one_target_does_more_than_probe(guesses: int, used: bool) -> None:
    work = {"plain_seconds": 9, "spent_seconds": 10}
    plain = target("t0", 15, passes=900, **work)
    other = target("t1", 15, passes=100, first_guesses=guesses, **work)
    (found,) = gains([target("t0"), target("t1")], [plain, other])
    assert found.used is used


def test_the_last_eight_windows_are_kept() -> None:
    scraped = [[target("t0", 15.0 * n, plain_seconds=n, spent_seconds=n)] for n in range(30)]
    assert [one.ended for one in gains(*scraped)] == [15.0 * n for n in range(22, 30)]


def test_nothing_decoded_has_no_gain_and_no_rates() -> None:
    found = between([target()], [target(at=15)])
    assert found is not None
    assert (found.gain_percent, found.tokens_per_pass, found.hit_rate) == (None, None, None)


@pytest.mark.parametrize(
    ("later", "ready", "expected"),
    [
        ([draft("d0", 15, 3), draft("d1", 15, 4)], "d0 d1", 7),
        ([draft("d0", 15, 3)], "d0 d1", None),
        ([draft("d0", -46, 3)], "d0", None),
        ([], "", 0),
        ([draft("d0", 15, 3)], "", 0),
    ],
)
def test_sessions_are_known_where_every_draft_was_seen(
    later: list[Sample], ready: str, expected: int | None
) -> None:
    found = Scrapes(later={sample.uid: sample for sample in later})
    assert found.sessions(ready.split(), 15, 60) == expected


def test_looks_keep_a_silent_pods_last_sample_and_forget_pods_that_are_gone() -> None:
    scrapes = Scrapes().add([target("t0", 0), target("t1", 0)], {"t0", "t1"}, 0)
    assert scrapes.starting
    scrapes = scrapes.add([target("t0", 15)], {"t0", "t1"}, 0)
    assert not scrapes.starting
    assert {uid: sample.at for uid, sample in scrapes.later.items()} == {"t0": 15, "t1": 0}
    assert scrapes.window(["t0"], 15, 60) is not None
    scrapes = scrapes.add([target("t1", 30)], {"t1"}, 0)
    assert set(scrapes.later) == {"t1"}
    assert scrapes.window(["t0"], 30, 60) is None


def test_a_pod_that_missed_one_look_counts_both_windows_at_the_next() -> None:
    scrapes = Scrapes().add([target(at=0)], {"t0"}, 0).add([], {"t0"}, 0)
    assert scrapes.window(["t0"], 15, 60) is None
    scrapes = scrapes.add([target(at=30, passes=9)], {"t0"}, 0)
    found = scrapes.window(["t0"], 30, 60)
    assert found is not None
    assert (found.began, found.ended, found.counters.passes) == (0, 30, 9)
