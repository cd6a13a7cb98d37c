"""Runs passes of a target, and of its draft in the same process, on one CPU rank in compiled code.

Leaves what may run so, and what follows from it, to `run`.
"""

import contextlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.cpu.collectives import ALONE
from outrider.kernels.jit.by_address import ByAddress
from outrider.kernels.jit.handle import Handle, handle
from outrider.kernels.sampling.draft_scores import ScoreRules
from outrider.worker.compiled_loop.loop import (
    GrowthTables,
    GrowthTerms,
    Moves,
    Reason,
    RootFunctions,
    RootLog,
    RootTables,
    Side,
    run_roots,
    score_by_address,
)
from outrider.worker.compiled_loop.run import (
    MOST_MOVES,
    MOST_NEW_NODES,
    DraftPass,
    GrowthPlan,
    Root,
    RootOutput,
    RootRun,
)
from outrider.worker.draft.session import DraftSession
from outrider.worker.engine.runner import DraftRunner, SampledTokens, TargetRunner
from outrider.worker.model.llama import Llama
from outrider.worker.speculation.local_sources import SourceRows
from outrider.worker.target.batch import TargetBatch
from outrider.worker.target.pass_record import PassRecord
from outrider.worker.target.scheduler import HasParts
from outrider.worker.target.sequence import Sequence
from outrider.worker.tree.draft_rows import DraftRows
from outrider.worker.tree.mirror_table import DRAFT


class CompiledTarget:
    """Runs steps of a target on one CPU rank: passes of any batch, and runs of roots."""

    def __init__(
        self, runner: TargetRunner, model: Llama, vocabulary: int, arrived: NDArray[np.int64]
    ) -> None:
        """`vocabulary`: logits that are tokens; `arrived` [1]: not 0 while there may be a message
        for the engine."""
        self._runner = runner
        self._model = model
        self._vocabulary = vocabulary
        self._arrived = arrived
        self.draft: CompiledDraft | None = None
        """The draft in the same process, if its passes run on the CPU too."""
        self._log = RootLog.empty()
        self._log_handle = handle(self._log)
        self._moves = Moves.empty(MOST_MOVES)
        self._functions: RootFunctions | None = None
        """Made with the first sequence; they fit all."""
        self._known: tuple[Sequence, Handle[RootTables]] | None = None
        """The tables of the last sequence."""

    def run(self, step: HasParts) -> list[SampledTokens] | RootOutput:
        """Run one step."""
        if not isinstance(step, RootRun):
            assert isinstance(step, TargetBatch)
            return self._runner.run(step)
        sequence, kv_cache = step.part.sequence, self._model.kv_cache
        tables, table = self._tables(sequence), sequence.kv.table
        self._moves.put(*kv_cache.queued())
        try:
            if step.drafting is None:
                count, reason = run_roots(tables, table, step.terms, None, None)
            else:
                assert self.draft is not None
                with self.draft.grows(step.drafting) as (growth, terms):
                    count, reason = run_roots(tables, table, step.terms, growth, terms)
        finally:
            kv_cache.move_slots(*self._moves.take())  # those that no pass has made
        roots = [self._root(number, step) for number in range(count)]
        return RootOutput(roots, self._log.grown.item(count), Reason(reason))

    def _root(self, number: int, step: RootRun) -> Root:
        """Return one root of the log."""
        log = self._log
        count = log.passes.item(number)
        draft = log.draft_began, log.draft_ended, log.draft_rows, log.draft_prefills, log.sent
        passes = zip(*(column[number, :count].tolist() for column in draft), strict=True)
        return Root(
            grown=log.grown.item(number),
            first=log.first.item(number),
            draft_passes=[DraftPass(*one) for one in passes],
            began=log.began.item(number),
            ended=log.ended.item(number),
            followed=log.followed.item(number),
            candidates=log.candidates.item(number),
            done=self._record(number, step),
        )

    def _record(self, number: int, step: RootRun) -> PassRecord[Sequence]:
        """Return what the target's pass did at one root."""
        log, rows = self._log, self._log.source_rows[number]
        nodes, tokens = log.nodes.item(number), log.tokens.item(number)
        in_session = step.drafting is not None
        return PassRecord(
            step.part.sequence,
            1,
            nodes,
            log.live.item(number),
            log.first_token.item(number),
            in_session,
            None
            if rows.item(DRAFT) == nodes
            else SourceRows(rows.tolist(), log.source_accepted[number].tolist()),
            log.accepted.item(number),
            log.committed[number, :tokens],
            log.survived.item(number),
            log.surplus.item(number),
            draft_follows=in_session,
        )

    def _tables(self, sequence: Sequence) -> Handle[RootTables]:
        if self._known is None or self._known[0] is not sequence:
            model = self._model
            if self._functions is None:
                self._functions = RootFunctions.of(sequence.tree)
            tables = RootTables(
                sequence.tree,
                Side(model.team, model.compiled, self._moves),
                ALONE,
                self._runner.sampler.compiled(sequence.submit.sampling),
                self._vocabulary,
                self._arrived,
                self._log_handle,
                self._functions,
            )
            self._known = sequence, handle(tables)
        return self._known[1]


class CompiledDraft:
    """Lets a draft's trees grow in runs of its target."""

    def __init__(
        self,
        runner: DraftRunner,
        model: Llama,
        rows: DraftRows,
        allowed: NDArray[np.bool_],
    ) -> None:
        """`rows`: room for those of a pass; `allowed` [the target's vocabulary]: ids that may be
        draft tokens."""
        self._runner = runner
        self._model = model
        self._rows = rows
        self._allowed = allowed
        self._moves = Moves.empty(MOST_MOVES)
        self._score_rows: ByAddress | None = None
        """Made with the first session; it fits all."""
        self._known: tuple[DraftSession, Handle[GrowthTables]] | None = None
        """The tables of the last session."""

    @contextlib.contextmanager
    def grows(self, drafting: GrowthPlan) -> Iterator[tuple[Handle[GrowthTables], GrowthTerms]]:
        """Yield tables and terms of a run, whose passes make the moves of KV that wait."""
        own, kv_cache = drafting.session, self._model.kv_cache
        rules = self._runner.compiled(own.rules)
        tables = self._tables(own, rules)
        terms = GrowthTerms(
            own.block_table.table,
            rules,
            drafting.terms,
            drafting.price,
            drafting.full,
            MOST_NEW_NODES,
        )
        self._moves.put(*kv_cache.queued())
        try:
            yield tables, terms
        finally:
            kv_cache.move_slots(*self._moves.take())

    def _tables(self, own: DraftSession, rules: Handle[ScoreRules]) -> Handle[GrowthTables]:
        if self._known is None or self._known[0] is not own:
            noise, model = self._runner.noise(own.rules), self._model
            if self._score_rows is None:
                self._score_rows = score_by_address(rules, noise)
            tables = GrowthTables(
                own.tree.compiled,
                own.tokens,
                self._rows.handle,
                Side(model.team, model.compiled, self._moves),
                noise,
                self._allowed,
                self._runner.columns,
                self._score_rows,
            )
            self._known = own, handle(tables)
        return self._known[1]
