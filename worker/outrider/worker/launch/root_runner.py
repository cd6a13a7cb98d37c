"""Runs roots of a target and its draft, both on the CPU in one process, in compiled code.

Leaves what may run so, and what follows from it, to `root_run`.
"""

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.cpu.collectives import ALONE
from outrider.kernels.jit.handle import Handle, handle
from outrider.kernels.sampling.draft_scores import ScoreRules
from outrider.worker.draft.session import DraftSession
from outrider.worker.engine.runner import DraftRunner, TargetRunner
from outrider.worker.launch.root_loop import (
    Moves,
    Pages,
    RootFunctions,
    RootLog,
    RootTables,
    Side,
    Vocabularies,
    run_roots,
)
from outrider.worker.launch.root_run import (
    MOST_MOVES,
    DraftPass,
    Root,
    RootOutput,
    RootRun,
    Weighing,
)
from outrider.worker.model.llama import Llama
from outrider.worker.target.commit import Booked
from outrider.worker.target.pass_loop import Reason
from outrider.worker.target.sequence import Sequence
from outrider.worker.tree.draft_rows import DraftRows


class CompiledRoots:
    """Runs roots of a target and its draft, both on the CPU in one process."""

    def __init__(
        self,
        target: tuple[TargetRunner, Llama],
        draft: tuple[DraftRunner, Llama],
        vocabularies: Vocabularies,
        allowed: NDArray[np.bool_],
        arrived: NDArray[np.int64],
    ) -> None:
        """`allowed` [the target's vocabulary]: ids on which both tokenizers agree; `arrived` [1]:
        not 0 while there may be a message for the engine."""
        self._sampler = target[0].sampler
        self._draft_runner = draft[0]
        self._models = target[1], draft[1]
        self._caches = target[1].kv_cache, draft[1].kv_cache
        self._vocabularies = vocabularies
        self._allowed = allowed
        self._arrived = arrived
        self._log = RootLog.empty()
        self._log_handle = handle(self._log)
        self._moves = Moves.empty(MOST_MOVES), Moves.empty(MOST_MOVES)
        self._known: tuple[DraftSession, Handle[RootTables]] | None = None
        """The tables of the last session."""
        self._functions: RootFunctions | None = None
        """Made with the first sequence; they fit all."""

    def run(self, step: RootRun, rows: DraftRows) -> RootOutput:
        """Run one step; `rows`: room for the draft's."""
        sequence, own = step.part.sequence, step.own
        for cache, moves in zip(self._caches, self._moves, strict=True):
            moves.put(*cache.queued())
        pages = Pages(sequence.kv.table, own.block_table.table)
        rules = self._draft_runner.compiled(own.rules)
        try:
            tables = self._tables(sequence, own, rows, rules)
            count, reason = run_roots(tables, pages, rules, step.terms)
        finally:  # those that no pass has made
            for cache, moves in zip(self._caches, self._moves, strict=True):
                cache.move_slots(*moves.take())
        roots = [self._root(number) for number in range(count)]
        return RootOutput(roots, self._log.grown.item(count), Reason(reason))

    def _root(self, number: int) -> Root:
        """Return one root of the log."""
        log = self._log
        weighed = [
            Weighing(*pair)
            for pair in zip(log.values[number].tolist(), log.times[number].tolist(), strict=True)
        ]
        count, tokens = log.passes.item(number), log.tokens.item(number)
        draft = log.draft_began, log.draft_rows, log.draft_prefills, log.sent
        passes = zip(
            *(column[number, :count].tolist() for column in draft), weighed[1:], strict=False
        )
        return Root(
            grown=log.grown.item(number),
            first=weighed[0],
            supplied=log.supplied.item(number),
            draft_passes=[DraftPass(*one) for one in passes],
            began=log.began.item(number),
            ended=log.ended.item(number),
            live=log.live.item(number),
            selected=log.selected[number, : log.nodes.item(number)],
            first_token=log.first_token.item(number),
            sources=(log.source_rows[number].tolist(), log.source_accepted[number].tolist()),
            done=Booked(
                log.committed[number, :tokens],
                log.accepted.item(number),
                log.survived.item(number),
                log.surplus.item(number),
            ),
            followed=log.followed.item(number),
        )

    def _tables(
        self, sequence: Sequence, own: DraftSession, rows: DraftRows, rules: Handle[ScoreRules]
    ) -> Handle[RootTables]:
        if self._known is None or self._known[0] is not own:
            target, draft = (
                Side(model.crew, model.compiled, moves)
                for model, moves in zip(self._models, self._moves, strict=True)
            )
            noise = self._draft_runner.noise
            if self._functions is None:
                self._functions = RootFunctions.of(sequence.tree, rules, noise)
            tables = RootTables(
                sequence.tree,
                own.tree.compiled,
                own.tokens,
                rows.handle,
                target,
                draft,
                ALONE,
                self._sampler.compiled(sequence.submit.sampling),
                noise,
                self._allowed,
                self._vocabularies,
                self._arrived,
                self._log_handle,
                self._functions,
            )
            self._known = own, handle(tables)
        return self._known[1]
