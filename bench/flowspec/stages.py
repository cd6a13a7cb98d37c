"""Simulated stages and the links between them, as their leader sees them: records go in, results
come back. Real state machines over links and layers that take only virtual time.

A stage does what `pipeline.stage_loop` does: handle the oldest record, take what has come
meanwhile, for it may kill rows of the output, then send.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.flowspec.language import Language, step
from bench.flowspec.network import Clock, Link, Sizes
from bench.flowspec.outcome import Span
from bench.flowspec.setting import Setting
from outrider.worker.kv.block_pool import BLOCK
from outrider.worker.model.rows import Rows
from outrider.worker.pipeline.records import Floats, Ints, Record, Results, Segment
from outrider.worker.pipeline.stage import Stage
from outrider.worker.pipeline.stage_sampler import StageSampler
from outrider.worker.sampling.logits_processor import LogitsProcessors

Keys = NDArray[np.uint64]


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


class PathLayers:
    """Layers of one stage: KV holds the key of each row's path, and costs no time by itself.

    A row's key follows from its parent's, read from the slot that the stage was told: a wrong slot,
    a missed Move or a row that came too early gives another key, and so another text.
    """

    def __init__(self, language: Language, slots: int, *, last: bool) -> None:
        self._language = language
        self._keys: Keys = np.zeros(slots, np.uint64)
        self._last = last
        self._logits = np.zeros((1, language.vocabulary), np.float32)

    def compute(self, rows: Rows, hidden: Floats | None) -> Floats:
        """Write each row's key; raise `ValueError` where the stage before had another one."""
        keys = np.array([self._computed(rows, row) for row in range(rows.count)], np.uint64)
        if hidden is not None and not np.array_equal(hidden, packed(keys)):
            raise ValueError("two stages computed different paths for the same rows")
        return self._logits_after(keys[rows.outputs]) if self._last else packed(keys)

    def move(self, sources: Ints, destinations: Ints) -> None:
        """Copy keys."""
        self._keys[destinations] = self._keys[sources]

    def _computed(self, rows: Rows, row: int) -> int:
        position, token = int(rows.positions[row]), int(rows.tokens[row])
        before = self._language.seed
        if position:
            depth = int(rows.depth[row])
            parent = int(rows.ancestors[row, depth - 2]) if depth > 1 else position - 1
            block = rows.tables[rows.sequence[row], parent // BLOCK]
            before = int(self._keys[block * BLOCK + parent % BLOCK])
        key = step(before, token)
        self._keys[rows.slots[row]] = key
        return key

    def _logits_after(self, keys: Keys) -> Floats:
        if len(keys) > len(self._logits):
            self._logits = np.zeros((len(keys), self._language.vocabulary), np.float32)
        logits = self._logits[: len(keys)]
        logits[:] = 0
        for row, key in enumerate(keys.tolist()):
            logits[row, self._language.next_token(key)] = 1
        return logits


def packed(keys: Keys) -> Floats:
    """Return keys as floats that hold them exactly, float32[n, 4]."""
    return keys.view(np.uint16).reshape(-1, 4).astype(np.float32)
