"""A target under the stress traces of Nightjar (arXiv 2512.22420), as a queue of requests over KV.

Sizes are those of its first pair: 4112 blocks of 16 tokens beside the draft, 4938 without it. Pure
and seeded; what is under test is `DraftMemory`, everything else is a plain model of an engine.
"""

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from outrider.contract.counters import DraftMemoryState
from outrider.worker.speculation.draft_memory import DraftMemory, MemorySettings, MemoryView

OWN, LENT = 4112, 826
BLOCK_TOKENS = 16
PROMPT, ANSWER = 220, 800
"""Tokens in the mean; a distilled reasoning model answers at length."""
MOST_RUNNING = 256
COPY_SECONDS = 0.05
PAYS_UP_TO = 24
"""Running requests up to which drafting gains."""

Trace = tuple[tuple[float, int], ...]
"""Phases: requests a second, and how many."""
SPIKE: Trace = ((2, 30), (8, 40), (24, 80), (40, 120), (6, 40))
OSCILLATION: Trace = ((4, 30), (28, 30)) * 3
MIGRATION: Trace = ((6, 40), (36, 140), (36, 140), (3, 20), (30, 120))


def arrivals(trace: Trace, seed: int, start: float = 0.0) -> deque[float]:
    """Return the times of a trace's requests, Poisson within each phase."""
    random, now, times = np.random.default_rng(seed), start, []
    for rate, count in trace:
        for gap in random.exponential(1 / rate, count):
            now += gap
            times.append(now)
    return deque(times)


@dataclass
class Request:
    """Tokens so far, and at the end."""

    length: int
    end: int

    @property
    def blocks(self) -> int:
        return -(-(self.length + 1) // BLOCK_TOKENS)


@dataclass
class Engine:
    """Decodes all that run by one token a step; the last to come gives way where KV is short."""

    settings: MemorySettings
    seed: int = 0
    now: float = 0.0
    waiting: deque[Request] = field(default_factory=deque)
    running: list[Request] = field(default_factory=list)
    expansions: int = 0
    contractions: int = 0
    preemptions: int = 0
    most_used: int = 0
    drafted_away: int = 0
    """Steps with drafts while the draft's memory was not there."""

    def __post_init__(self) -> None:
        self.memory = DraftMemory(OWN, LENT, self.settings)
        self.random = np.random.default_rng(self.seed)
        self.copied_at = 0.0

    @property
    def blocks(self) -> int:
        return OWN + LENT * (self.memory.state is DraftMemoryState.ON_HOST)

    @property
    def used(self) -> int:
        return sum(request.blocks for request in self.running)

    def run(self, times: deque[float], quiet_seconds: float = 60.0) -> None:
        """Serve requests, and then be idle for a while."""
        while times or self.waiting or self.running:
            if not self.waiting and not self.running:
                self.now = max(self.now, times[0])
            while times and times[0] <= self.now:
                times.popleft()
                prompt, answer = self.random.exponential([PROMPT, ANSWER]).astype(int) + 8
                self.waiting.append(Request(int(prompt), int(prompt + answer)))
            self.step()
        for _ in range(int(quiet_seconds / 0.1)):
            self.now += 0.1
            self.move()

    def step(self) -> None:
        self.move()
        while self.waiting and len(self.running) < MOST_RUNNING:
            if self.used + self.waiting[0].blocks > self.blocks - len(self.running):
                break
            self.running.append(self.waiting.popleft())
        for request in self.running:
            request.length += 1
        self.running = [one for one in self.running if one.length < one.end]
        while self.used > self.blocks:
            self.preemptions += 1
            self.waiting.appendleft(self.running.pop())
        self.most_used = max(self.most_used, self.used)
        self.drafted_away += self.drafting and self.memory.away
        self.now += 0.020 + 0.0001 * len(self.running)

    @property
    def drafting(self) -> bool:
        """Length: a planner that drafts where that pays, and where there is a draft."""
        return self.gain > 1.05 and not self.memory.away

    @property
    def gain(self) -> float:
        return 1.4 if len(self.running) <= PAYS_UP_TO else 0.8

    def move(self) -> None:
        if self.memory.moving:
            if self.now >= self.copied_at:
                self.memory.end()
                self.expansions += self.memory.away
            return
        short = bool(self.waiting) and len(self.running) < MOST_RUNNING
        view = MemoryView(self.blocks - self.used, short, self.drafting, self.gain)
        move = self.memory.wanted(view, self.now)
        if move is DraftMemoryState.RELOADING:
            if self.used > OWN:
                self.memory.put_off()
                return
            self.contractions += 1
        if move is not None:
            self.memory.begin(move)
            self.copied_at = self.now + COPY_SECONDS
