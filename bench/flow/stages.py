"""Stages as their leader sees them: records go in, results come back; simulated ones here."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from bench.flow.clock import Clock
from bench.flow.language import Language
from bench.flow.network import Link, Sizes
from bench.flow.outcome import Span
from bench.flow.path_layers import PathLayers
from bench.flow.setting import Setting
from bench.flow.stage_host import Processors, StageHost
from outrider.worker.pipeline.records import Record, Results
from outrider.worker.pipeline.stage import Stage
from outrider.worker.pipeline.stage_sampler import StageSampler
from outrider.worker.sampling.logits_processor import LogitsProcessors


class Stages(Protocol):
    """A pipeline's stages and the links between them."""

    clock: Any
    """`Clock`, or one like it that is real."""

    def begin(self, arrive: Callable[[Results], None]) -> None:
        """Begin; `arrive` takes results."""

    def send(self, record: Record) -> None:
        """Send a record to the first stage."""

    @property
    def sent_bytes(self) -> int:
        """Bytes on all links so far."""

    @property
    def spans(self) -> Sequence[Span]:
        """What stages did; none where that is not known."""


class SimulatedStages:
    """Real state machines over links and layers that take only virtual time."""

    def __init__(
        self, setting: Setting, language: Language, slots: int, tells_times: bool = False
    ) -> None:
        """`tells_times`: each stage adds its visit to a segment, as real ones do."""
        self.clock = Clock()
        self._tells_times = tells_times
        self._setting = setting
        self._language = language
        self._slots = slots
        self._sizes = Sizes(setting.hidden)
        self._links: list[Link] = []
        self._hosts: list[StageHost] = []
        self.layers: list[PathLayers] = []

    def begin(self, arrive: Callable[[Results], None]) -> None:
        """Join stages and links, the last stage first."""
        setting = self._setting
        processors = Processors(self.clock, setting.processors)
        self._links = [Link(self.clock, setting.links, arrive)]
        for number in reversed(range(setting.count)):
            last = number == setting.count - 1
            sampler = StageSampler(LogitsProcessors(self._language.vocabulary)) if last else None
            layers = PathLayers(self._language, self._slots, last=last)
            host = StageHost(
                processors,
                Stage(layers, sampler),
                number,
                lambda rows, number=number: setting.stage(number, rows),
                lambda record, link=self._links[0]: link.send(record, self._sizes.of(record)),
                self._tells_times,
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
