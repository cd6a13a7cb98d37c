"""Simulated stages and the links between them, as their leader sees them: records go in, results
come back. Real state machines over links and layers that take only virtual time.

A stage does what `pipeline.stage_loop` does: handle the oldest record, take what has come
meanwhile, for it may kill rows of the output, then send.
"""

from collections.abc import Callable, Sequence
from typing import Any

from bench.flow.clock import Clock
from bench.flow.language import Language
from bench.flow.network import Link, Sizes
from bench.flow.outcome import Span
from bench.flow.path_layers import PathLayers
from bench.flow.setting import Setting
from outrider.worker.pipeline.records import Record, Results, Segment
from outrider.worker.pipeline.stage import Stage
from outrider.worker.pipeline.stage_sampler import StageSampler
from outrider.worker.sampling.logits_processor import LogitsProcessors


class StageHost:
    """One stage and its time."""

    def __init__(
        self,
        clock: Clock,
        stage: Stage,
        number: int,
        seconds: Callable[[int], float],
        send: Callable[[Any], None],
    ) -> None:
        """`seconds` of a segment of so many rows; `send` takes what goes to the next party."""
        self._clock = clock
        self._stage = stage
        self._number = number
        self._seconds = seconds
        self._send = send
        self._running = False
        self.spans: list[Span] = []

    def receive(self, record: Record) -> None:
        """Take a record that has arrived."""
        self._stage.receive(record)
        if not self._running:
            self._run()

    def _run(self) -> None:
        """Handle records until one takes time."""
        while self._stage.incoming:
            oldest = self._stage.incoming[0]
            self._stage.step()
            rows = oldest.count if isinstance(oldest, Segment) else 0
            if rows:
                self._running = True
                begin = self._clock.now
                end = begin + self._seconds(rows)
                self.spans.append(Span(self._number, begin, end, rows))
                self._clock.at(end, self._computed)
                return
            self._send_all()

    def _computed(self) -> None:
        self._running = False
        self._send_all()
        self._run()

    def _send_all(self) -> None:
        while self._stage.outgoing:
            self._send(self._stage.outgoing.popleft())


class SimulatedStages:
    """A pipeline's stages and the links between them."""

    def __init__(
        self, setting: Setting, language: Language, slots: int, arrive: Callable[[Results], None]
    ) -> None:
        """Join stages and links, the last stage first; `arrive` takes results."""
        self.clock = Clock()
        self._sizes = Sizes(setting.hidden)
        self._links = [Link(self.clock, setting.links, arrive)]
        self._hosts: list[StageHost] = []
        self.layers: list[PathLayers] = []
        for number in reversed(range(setting.count)):
            last = number == setting.count - 1
            sampler = StageSampler(LogitsProcessors(language.vocabulary)) if last else None
            layers = PathLayers(language, slots, last=last)
            host = StageHost(
                self.clock,
                Stage(layers, sampler),
                number,
                lambda rows, number=number: setting.stage(number, rows),
                lambda record, link=self._links[0]: link.send(record, self._sizes.of(record)),
            )
            self.layers.insert(0, layers)
            self._hosts.insert(0, host)
            self._links.insert(0, Link(self.clock, setting.links, host.receive))

    def send(self, record: Record) -> None:
        """Send a record to the first stage."""
        self._links[0].send(record, self._sizes.of(record))

    @property
    def sent_bytes(self) -> int:
        """Bytes on all links so far."""
        return sum(link.bytes for link in self._links)

    @property
    def spans(self) -> Sequence[Span]:
        """What all stages did."""
        return [span for host in self._hosts for span in host.spans]
