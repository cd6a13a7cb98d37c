"""What stands between real processes and the simulation: recordings, padding, relays, the clock."""

import os
import socket
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from bench.flow.language import Language, drawn_guesses
from bench.flow.leader_host import PROMPT
from bench.flow.padded_stage import PaddedExecutor
from bench.flow.real import SIDES, measured_setting, run_simulated
from bench.flow.real_cases import RealCase
from bench.flow.real_stages import RealClock, RealStages
from bench.flow.recording import Recording, Trip
from bench.flow.relay import forward
from bench.flow.setting import MAX_ROWS, Links
from outrider.worker.model.rows import Rows
from outrider.worker.pipeline.records import Results

LINKS = Links(150e6, 2e-3)
PADDED = RealCase("padded", 4.0, (LINKS,), tokens=24)
OWN = RealCase("at their own speed", None, (LINKS,), tokens=24)
SETTING = PADDED.setting(2)
SECONDS = 60.0


def trip(sent: float, rows: int, seconds: Sequence[float], way: float = 3e-3) -> Trip:
    """One over stages that take so long, with equal ways between them."""
    visits, at = [], sent
    for each in seconds:
        came = at + way
        visits.append([rows, came, came, came + each])
        at = came + each
    return Trip(sent, np.array(visits), at + way)


def test_recorded_times_are_medians_by_rows_with_lines_between_and_beyond() -> None:
    trips = [trip(0.0, 1, (0.01 * scale, 0.02)) for scale in (1, 1, 50)]
    trips += [trip(0.0, 5, (0.03, 0.02))]
    seconds = Recording(trips).seconds(2)
    assert seconds.shape == (2, MAX_ROWS)
    assert seconds[0, :6] == pytest.approx([0.01, 0.015, 0.02, 0.025, 0.03, 0.035])
    assert seconds[1] == pytest.approx(np.full(MAX_ROWS, 0.02))


def test_with_means_a_stall_takes_its_share() -> None:
    trips = [trip(0.0, 1, (0.01 * scale, 0.02)) for scale in (1, 1, 1, 41)]
    trips += [trip(0.0, 1, (0.01, 0.02), way=13e-3)]
    recording = Recording(trips)
    measured = recording.calibrated(SETTING, recording)
    assert measured.stage(0, 1) == pytest.approx(0.01)
    assert measured.links.delay == pytest.approx(3e-3)
    own = recording.with_means(measured)
    assert own.stage(0, 1) == pytest.approx(0.09)
    assert own.links.delay == pytest.approx(5e-3)
    assert own.host == measured.host


def test_links_and_leader_are_what_is_left_of_plain_decoding() -> None:
    first = trip(0.0, 1, (0.01, 0.02))
    second = trip(first.arrived + 1e-3, 1, (0.01, 0.02))
    plain = Recording([first, second])
    assert plain.links(LINKS).delay == pytest.approx(3e-3)
    assert plain.links(LINKS).bits_per_second == LINKS.bits_per_second
    assert plain.host() == pytest.approx(1e-3)
    found = plain.calibrated(SETTING, plain)
    assert found.host == pytest.approx(1e-3)
    assert found.stage(1, 1) == pytest.approx(0.02)
    assert plain.overrun(found) == 0.0
    stated = OWN.setting(2)  # 15 ms a stage
    assert plain.overrun(stated) == 0.5


class Layers:
    """Layers that take two seconds of a clock that stands still otherwise."""

    def __init__(self) -> None:
        self.now, self.slept = 0.0, 0.0

    def forward_layers(self, rows: Rows, hidden: object) -> str:
        self.now += 2.0
        return "computed"

    def sleep(self, seconds: float) -> None:
        self.slept = seconds


@pytest.mark.parametrize(("stated", "slept"), [(5.0, 3.0), (2.0, 0.0), (0.5, 0.0)])
def test_a_padded_pass_takes_at_least_the_stated_time(stated: float, slept: float) -> None:
    layers: Any = Layers()
    executor = PaddedExecutor(layers, lambda rows: rows * stated, lambda: layers.now, layers.sleep)
    rows: Any = type("Rows", (), {"count": 1})
    assert executor.compute(rows, None) == "computed"
    assert layers.slept == slept


def test_a_relay_carries_both_directions_and_their_end() -> None:
    server = socket.create_server(("127.0.0.1", 0))
    relay = socket.create_server(("127.0.0.1", 0))
    arguments = (relay, server.getsockname()[1], Links(1e9, 1e-3))
    forwarding = threading.Thread(target=forward, args=arguments, daemon=True)
    forwarding.start()
    sent = bytes(range(256)) * 4096
    with socket.create_connection(relay.getsockname()) as near:
        far, _ = server.accept()
        for source, sink in ((near, far), (far, near)):
            source.settimeout(SECONDS)
            threading.Thread(target=source.sendall, args=(sent,)).start()
            sink.settimeout(SECONDS)
            found = b""
            while len(found) < len(sent):
                found += sink.recv(1 << 20)
            assert found == sent
        near.shutdown(socket.SHUT_WR)
        assert far.recv(1) == b""
        far.close()
    server.close()
    relay.shutdown(socket.SHUT_RDWR)
    forwarding.join(SECONDS)
    assert not forwarding.is_alive()
    relay.close()


@pytest.fixture(scope="module")
def language() -> Language:
    return Language.of(drawn_guesses(0.6, positions=512), PROMPT + 24, seed=3)


@pytest.mark.parametrize("side", SIDES)
def test_every_side_writes_the_same_text_over_simulated_stages(
    side: str, language: Language
) -> None:
    outcome = run_simulated(SIDES[side], SETTING, language)
    assert outcome.text.tolist() == language.text[PROMPT:].tolist()


def test_stages_at_their_own_speed_are_simulated_with_the_times_that_they_have_alone() -> None:
    recorded = {"plain": Recording([trip(0.0, 1, (0.01, 0.02)), trip(1.0, 1, (0.01, 0.02))])}
    recorded["engine"] = Recording([trip(0.0, 1, (0.5, 0.5)) for _ in range(5)])
    alone = OWN.setting(2)
    own = measured_setting(alone, OWN, recorded)
    assert own.stage(0, 1) == alone.stage(0, 1)
    assert own.links.delay == pytest.approx(3e-3)
    assert own.processors == os.cpu_count()
    padded = measured_setting(SETTING, PADDED, recorded)
    assert padded.stage(0, 1) == pytest.approx(0.5)
    assert padded.processors > padded.count


def results_of(segment: int, arrived: float) -> Results:
    none = np.zeros(0, np.int32)
    floats, visits = none.astype(np.float32), trip(0.0, 1, (0.1, 0.1)).visits
    tops = none.reshape(0, 0), floats.reshape(0, 0)
    return Results(segment, none.astype(np.int64), none, floats, *tops, visits, arrived)


class Client:
    """Links whose results come when they are asked for."""

    def __init__(self, *segments: int) -> None:
        self.sent: list[Any] = []
        self.sent_bytes = 0
        self._results = [results_of(segment, 1.0) for segment in segments]

    def send(self, record: Any) -> None:
        self.sent.append(record)

    def receive(self, seconds: float | None) -> list[Results]:
        return [self._results.pop(0)] if self._results else []


def test_a_real_clock_hands_over_results_and_keeps_the_order_of_events() -> None:
    came: list[object] = []
    clock = RealClock(lambda seconds: [results_of(7, 0.0)] if seconds > 30 else [])
    clock.arrive = lambda results: came.append(results.segment)
    clock.after(0.0, lambda: came.append("event"))
    clock.run(lambda: len(came) == 2)
    assert came == ["event", 7]


def test_a_request_is_over_when_all_its_segments_are_back(language: Language) -> None:
    client: Any = Client(0, 1)
    stages = RealStages(client)
    leader = SIDES["plain"](SETTING, language, stages)
    assert leader.leader.fill()
    (begin, segment) = leader.leader.outgoing
    stages.send(begin)
    stages.send(segment)
    stages.finish([])
    assert len(stages.recording.trips) == 1
    assert len(stages.spans) == 2
    stages.send(segment)
    with pytest.raises(KeyError):
        stages.finish([])  # results of a segment that nobody sent
