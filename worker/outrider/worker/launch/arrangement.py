"""Measurements of an engine that is not told yet how to run.

    settings → Measure, Measured, …, Arrange → the settings to build the engine by

Passes are timed in the process that will serve, over the weights that it will map again. Leaves
what is measured, and what follows, to the command line (`cli.placement`).
"""

import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from outrider.contract.processors import usable
from outrider.contract.settings import MAX_DRAFT_THREADS, Dtype, Role, WorkerSettings
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.checkpoints.translation import TargetTokens, tokens_for
from outrider.worker.costs.step_costs import StepCosts
from outrider.worker.costs.step_timing import NO_TOKENS, TimedPass
from outrider.worker.engine.loop import Transport
from outrider.worker.errors import ModelError, PairRefused
from outrider.worker.host.device import torch_device
from outrider.worker.host.process import keep_apart, keep_to
from outrider.worker.kv.block_pool import BlockTable, blocks_for
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.launch.load import load_model
from outrider.worker.launch.load_cpu import llama_of
from outrider.worker.launch.loaded import EngineModel
from outrider.worker.launch.prepare import Models
from outrider.worker.messages import (
    Alive,
    Arrange,
    AskAlive,
    AskTimeline,
    Measure,
    Measured,
    Timeline,
)
from outrider.worker.model.llama import Llama
from outrider.worker.model.rows import joined, prompt_rows
from outrider.worker.model.sharding import Shard
from outrider.worker.parallel.placement import LEADER, engines_processors
from outrider.worker.tree import draft_ids
from outrider.worker.tree.reading import Reading

SLOTS = 512
"""Most tokens of one sequence while models are measured."""
CONTEXT = 128
"""Tokens before the rows that are timed."""
LEVELS = 3
"""Levels of the trees that are imagined over an answer."""

Ids = NDArray[np.int32]


def settle(settings: WorkerSettings, models: Models, transport: Transport) -> WorkerSettings:
    """Measure as asked until told how to run; return the settings to build the engine by.

    Raises `ModelError` for a target, or a draft of its own, that cannot be loaded, and
    `ChannelClosed` when the server is gone.
    """
    processors, candidates = usable(), Candidates(settings, models)
    try:
        while True:
            for message in transport.drain():
                match message:
                    case Measure():
                        keep_to(message.processors or processors)
                        transport.send(candidates.measured(message))
                    case Arrange(settings=arranged):
                        keep_to(engines_processors(arranged) or processors)
                        return arranged
                    case AskAlive():
                        transport.send(Alive())
                    case AskTimeline():
                        transport.send(Timeline())
            transport.wait(None)
    finally:
        candidates.close()


class Candidate:
    """One loaded model over a KV cache that is its own."""

    def __init__(
        self, settings: WorkerSettings, role: Role, dtype: Dtype, prepared: PreparedModel
    ) -> None:
        """Load it as its engine will; raises `ModelError`."""
        self.model: EngineModel
        self.costs: StepCosts | None = None
        """On a GPU, where loading measures them."""
        if torch_device(settings.device) is None:
            share = Shard(prepared.config(), LEADER, 1)
            longest = min(SLOTS, share.config.context)
            kv_cache = HostKVCache(share.config.kv_shape, 2 * blocks_for(longest), longest)
            self.model, _ = llama_of(settings, role, dtype, prepared, share, kv_cache)
            kv_cache.warm_up()
        else:
            loaded = load_model(settings, role, dtype, prepared)
            self.model, self.costs = loaded.model, loaded.costs
        pool = self.model.kv_cache
        tables = (pool.admit(NO_TOKENS, min(pool.longest, SLOTS)) for _ in range(2))
        self.block_tables = [table for table in tables if table is not None]

    def timed(self, rows: int) -> Callable[[], float]:
        """Return a function that runs a pass over so many rows and returns its seconds."""
        if self.costs is not None:
            seconds = self.costs.seconds(rows, CONTEXT)
            return lambda: seconds
        timed_pass = TimedPass(self.model, self.block_tables)
        return partial(timed_pass.once, rows, min(CONTEXT, timed_pass.room // 2))

    def answered(
        self, prompts: Sequence[Sequence[int]], vocabulary: int, tokens: int, seconds: float
    ) -> Iterator[tuple[Ids, Ids]]:
        """Answer prompts greedily in the same passes, for about so many seconds; yield each with
        its answer, which is at most so many tokens."""
        room = self.block_tables[0].room
        tokens = min(tokens, room // 2)
        asked = [
            (np.array(prompt, np.int32)[tokens - room :], table)
            for prompt, table in zip(prompts, self.block_tables, strict=False)
        ]
        said = [[int(self._logits(*one)[-1, :vocabulary].argmax())] for one in asked]
        until = time.perf_counter() + seconds
        while len(said[0]) < tokens and time.perf_counter() < until:
            rows = [
                prompt_rows(np.array(ids[-1:], np.int32), len(prompt) + len(ids) - 1, table, True)
                for ids, (prompt, table) in zip(said, asked, strict=True)
            ]
            following = self.model.forward(joined(rows))[:, :vocabulary].argmax(axis=1)
            for ids, token in zip(said, following, strict=True):
                ids.append(int(token))
        for ids, (prompt, _) in zip(said, asked, strict=True):
            ends = (at for at, token in enumerate(ids) if token in self.model.config.end_ids)
            yield prompt, np.array(ids[: next(ends, len(ids))], np.int32)

    def guessed(self, prompt: Ids, answer: Ids, tokens: TargetTokens) -> Ids:
        """Return the likeliest of a target's tokens at each place of an answer of it, as far as
        there is room for the text before."""
        allowed, translation = tokens
        text, config = np.concatenate([prompt, answer[:-1]]), self.model.config
        reading = Reading.same(config.vocab) if translation is None else translation.reading
        lengths = np.diff(reading.first)[text] if len(reading.first) else np.ones_like(text)
        ends, begin = np.cumsum(lengths), 0 if translation is None else len(translation.begin)
        ends = ends[ends <= self.block_tables[0].room - begin]
        read = draft_ids.read(reading, text[: len(ends)])
        if translation is not None:
            read = translation.begun(read)
        ends += len(read) - ends[-1]
        logits = self._logits(read, self.block_tables[0])[ends[len(prompt) - 1 :] - 1]
        size = len(allowed) if translation is None else len(translation.target_ids)
        outputs = range(size) if config.output_ids is None else config.output_ids
        ids = np.array(outputs, np.int32)[: logits.shape[1]]
        if translation is not None:
            ids = translation.target_ids[ids]
        proposed = np.where((ids >= 0) & allowed[ids], logits[:, : len(ids)], -np.inf)
        best: Ids = ids[proposed.argmax(axis=1)]
        return best

    def _logits(self, tokens: Ids, table: BlockTable) -> NDArray[np.float32]:
        """Return the logits after every token of a text."""
        found = []
        for start in range(0, len(tokens), self.model.row_capacity):
            chunk = tokens[start : start + self.model.row_capacity]
            rows = prompt_rows(chunk, start, table, True)
            every = dataclasses.replace(rows, outputs=np.arange(len(chunk), dtype=np.int32))
            found.append(self.model.forward(every).copy())
        return np.concatenate(found)


class Candidates:
    """The models of a worker, loaded to be measured: its own, and a target's draft."""

    def __init__(self, settings: WorkerSettings, models: Models) -> None:
        """Raises `ModelError` if its own cannot be loaded; a draft inside is `refused` then."""
        self.own = Candidate(settings, settings.role, settings.model.dtype, models.own)
        self.draft: Candidate | None = None
        self.refused = ""
        self.vocabulary = models.vocabulary
        self.tokens = TargetTokens(np.zeros(0, np.bool_))
        """The target's, as the draft sees them."""
        if settings.colocated is None or models.colocated is None:
            return
        inner, dtype = settings.for_colocated_draft(), settings.colocated.dtype
        try:
            self.tokens = tokens_for(models.own, models.colocated, models.vocabulary)
            self.draft = Candidate(inner, Role.DRAFT, dtype, models.colocated)
        except (ModelError, PairRefused) as error:
            self.refused = str(error)

    def measured(self, measure: Measure) -> Measured:
        """Time rounds of passes, then compare answers with the draft's guesses."""
        self._share_threads(measure.threads)
        passes = [
            (self.draft if role is Role.DRAFT and self.draft else self.own).timed(rows)
            for role, rows in measure.passes
        ]
        spend = measure.seconds if isinstance(self.own.model, Llama) else 0.0
        seconds = medians(passes, spend) if passes else ()
        guesses = hits = 0
        if self.draft is not None and measure.prompts:
            limits = self.vocabulary, measure.tokens, measure.seconds
            for prompt, answer in self.own.answered(measure.prompts, *limits):
                guessed = self.draft.guessed(prompt, answer, self.tokens)
                found = first_guesses(guessed == answer[: len(guessed)])
                guesses, hits = guesses + found[0], hits + found[1]
        return Measured(seconds=seconds, guesses=guesses, hits=hits, refused=self.refused)

    def _share_threads(self, threads: int) -> None:
        """Compute with so many threads, a draft inside as it will, where models are on the CPU."""
        own, draft = self.own.model, self.draft.model if self.draft else None
        if not isinstance(own, Llama):
            return
        own.threads = threads
        other = draft if isinstance(draft, Llama) else own
        other.threads = min(threads, MAX_DRAFT_THREADS) if other is not own else threads
        own.share_threads(other)
        keep_apart(own.pass_threads.helpers)

    def close(self) -> None:
        """End the threads, and let the models go."""
        for candidate in filter(None, (self.own, self.draft)):
            candidate.model.close()


def first_guesses(right: NDArray[np.bool_]) -> tuple[int, int]:
    """Count a tree's first guesses, and the right ones, where a pass accepts what is right up to
    `LEVELS` tokens and adds its own: the next tree then begins behind a token that was wrong, and
    its first guess is wrong more often than others."""
    guesses = hits = at = 0
    while at < len(right):
        guesses, hits = guesses + 1, hits + int(right[at])
        wrong = np.flatnonzero(~right[at : at + LEVELS])
        at += 1 + int(wrong[0] if len(wrong) else LEVELS)
    return guesses, hits


def medians(passes: Sequence[Callable[[], float]], seconds: float) -> tuple[float, ...]:
    """Run rounds of passes for about so many seconds, one at least after one that warms up; return
    the median seconds of each."""
    for run in passes:
        run()
    rounds: list[list[float]] = []
    began = time.perf_counter()
    while not rounds or time.perf_counter() - began < seconds:
        rounds.append([run() for run in passes])
    return tuple(statistics.median(times) for times in zip(*rounds, strict=True))
