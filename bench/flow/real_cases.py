"""Cases in which real stages are set beside the simulation: their speed and their links."""

import os
from dataclasses import dataclass, replace

from bench.flow.setting import Links, Setting, demo


@dataclass(frozen=True, slots=True)
class RealCase:
    """Stages of one speed, over some links."""

    note: str
    """What is said of the stages, for people."""
    slower: float | None
    """Times by which padded stages are slower than `demo` says; None: stages at their own speed."""
    links: tuple[Links, ...]
    tokens: int
    """Of a text."""

    @property
    def padded(self) -> bool:
        return self.slower is not None

    def setting(self, count: int) -> Setting:
        """Return what is known of it before anything is measured.

        Stages at their own speed share this machine's processors; padded ones sleep for most of
        their time.
        """
        slower = self.slower or 1.0
        whole = demo(count, self.links[0])
        own = whole.processors if self.padded else os.cpu_count() or 1
        return replace(
            whole,
            name=f"demo, {self.note}",
            stages=slower * whole.stages,
            draft=slower * whole.draft,
            host=0.0,
            processors=own,
        )


FAST = Links(1e9, 0.0)
PAPER = Links(150e6, 10e-3)
FAR = Links(150e6, 25e-3)
"""A round trip over three of them is longer than what two stages compute of a row (30 ms)."""
NARROW = Links(3e6, 0.0)
"""A row of the demo's target (1.2 KB) takes 3.2 ms: eight of them more than a stage of two."""
CASES = {
    "padded": RealCase("padded: 10 times slower", 10.0, (PAPER,), 24),
    "own-speed": RealCase("at their own speed", None, (FAST,), 96),
    "slow-link": RealCase("at their own speed, links slower", None, (FAR, NARROW), 40),
}
