"""Commit: applies a verify pass to its sequences, streams tokens, and ends finished requests.

`RequestCommitter` is what does not depend on where a node's KV lies: what drafts, clients and
counters learn of a record.

Settles the tree by the sampled tokens (`target/tree_pass`), and moves the KV of accepted rows.
Leaves drafts to `target/sessions`, counters to `target/stats`, the next step to
`target/scheduler`, and a token's bytes to `api/response`.
"""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.sampling.log_softmax import log_probabilities
from outrider.worker.engine.runner import SampledTokens
from outrider.worker.kv.kv_cache import KVCache
from outrider.worker.messages import Finish, TokenLogprob
from outrider.worker.speculation.suffix_automaton import MOST_READ
from outrider.worker.target.batch import TargetPart
from outrider.worker.target.draft_switch import DraftSwitch
from outrider.worker.target.finished_answers import keep
from outrider.worker.target.pass_record import PassRecord
from outrider.worker.target.request import Request, stream
from outrider.worker.target.selection import RowSelector
from outrider.worker.target.sequence import Sequence
from outrider.worker.target.sessions import TargetSessions
from outrider.worker.target.stats import RequestStats, Stats
from outrider.worker.target.tree_pass import read_text, settle
from outrider.worker.tree.growth import Ints

NO_NUMBER = "the model's logits hold no number"

Control = TypeVar("Control", bound=DraftSwitch)


@dataclass(slots=True)
class RequestCommitter(Generic[Control]):
    """Hands what passes bring to drafts, clients and counters, whatever runs them."""

    sessions: TargetSessions[Control]
    stats: RequestStats[Control]
    outbox: list[Any]

    def commit(self, record: PassRecord[Any], now: float) -> int:
        """Hand on the tokens that a pass has added to its sequence; return those that decoding
        committed."""
        sequence, tokens, count = record.sequence, record.tokens, len(record.tokens)
        decodes = sequence.generated > count  # the first token is prefill's
        self.sessions.control.scale.learn(record.surplus)
        if decodes:
            self.stats.count_pass(record)
        root = sequence.position - count
        self.sessions.commit(sequence, root, tokens, now, record.draft_follows)
        sequence.take(tokens.tolist(), not decodes, now)
        if not sequence.submit.ends_by_text:
            self.stats.counters.generation_tokens += count
        return count if decodes else 0

    def close(self, request: Request, finish: Finish, now: float, detail: str = "") -> None:
        """End a request that holds no KV: send its last tokens, then `Finished`."""
        self.sessions.finish(request)
        request.send_end(finish, self.outbox, now, detail, self.sessions.control.planned)
        self.stats.count_end(request, finish)


@dataclass(slots=True)
class Committer(RequestCommitter[RowSelector]):
    """Commits tokens to the sequences of a target in one piece, and ends them."""

    stats: Stats
    kv_cache: KVCache
    running: list[Sequence]
    """Sequences that hold KV; one that ends is removed."""

    @property
    def row_selector(self) -> RowSelector:
        """Control of the target's sources of draft tokens."""
        return self.sessions.control

    def settled(
        self, part: TargetPart, output: SampledTokens, now: float
    ) -> PassRecord[Sequence] | None:
        """Settle the tree of a sequence after its pass, and move the KV of accepted rows.

        None: the pass was a prefill chunk that is not the last, or the request has ended.
        """
        sequence, sampled = part.sequence, output.tokens
        computed = part.rows.count - len(part.nodes)
        if len(sampled) == 0:
            sequence.computed += computed
            sequence.committed_at = now  # the wait for growth counts from here
            if sequence.sources & self.row_selector.local.on:
                read_text(sequence.tree, sequence.computed, max(MOST_READ, part.rows.count))
            self._publish(sequence)
            return None
        processor = sequence.logits_processor
        if processor is not None and (failure := processor.failure) is not None:
            detail = f"its form cannot be followed: {failure}"
            self.end(sequence, Finish.GRAMMAR_FAILED, now, detail)
            return None
        found = settle(sequence.tree, part.nodes, sampled, sequence.remaining)
        accepted_count, count, survived, surplus = found
        views, nodes = sequence.views, len(part.nodes)
        tokens, accepted = views.committed(count), views.accepted(accepted_count)
        if count:
            if (most := sequence.submit.logprobs) is not None:
                sequence.unsent_logprobs += token_logprobs(output.logits, accepted, tokens, most)
            if accepted_count:
                self._move_accepted(part.rows.slots[1:], accepted)
            self.show_tree(sequence, nodes, accepted_count)
        return PassRecord(
            sequence,
            computed,
            nodes,
            part.live,
            part.first_token,
            part.in_session,
            None if views.rows_of_draft == nodes else views.sources,
            accepted_count,
            tokens,
            survived,
            surplus,
        )

    def apply(self, record: PassRecord[Sequence], plain: float, started: float, now: float) -> int:
        """Apply a pass to its sequence; return the tokens that decoding committed.

        `plain`: seconds of a plain step; `started`: when the pass began.
        """
        sequence, tokens = record.sequence, record.tokens
        sequence.computed += record.computed + record.accepted
        if len(tokens) == 0:
            self.end(sequence, Finish.FAILED, now, NO_NUMBER)
            return 0
        if sequence.generated > 0:
            self.stats.count_time(sequence, len(tokens) * plain, started)
        else:
            self.row_selector.account.start()
        sequence.append(tokens, now)
        decoded = self.commit(record, now)
        self._publish(sequence)
        if tokens.item(-1) in sequence.submit.end_ids:
            self.end(sequence, Finish.STOP, now)
        elif sequence.remaining <= 0:
            self.end(sequence, Finish.LENGTH, now)
        return decoded

    def show_tree(self, sequence: Sequence, nodes: int, accepted: int) -> None:
        """Have the client sent the tree of the last pass, if it wants it and there was one."""
        if nodes and sequence.submit.shows_tree:
            sequence.unsent_tree = sequence.views.tree(nodes, accepted)

    def end(self, sequence: Sequence, finish: Finish, now: float, detail: str = "") -> None:
        """End a running sequence and free its KV."""
        self.running.remove(sequence)
        self.kv_cache.free(sequence.kv)
        keep(sequence, finish)
        self.close(sequence, finish, now, detail)

    def close(self, request: Request, finish: Finish, now: float, detail: str = "") -> None:
        """End a request that holds no KV: send its last tokens, then `Finished`."""
        if not self.running:
            self.row_selector.end_wait(now)
        RequestCommitter.close(self, request, finish, now, detail)

    def stream(self, now: float) -> None:
        """If an answer's tokens are due, send them, and those along that soon will be."""
        stream(self.running, self.outbox, now)

    def _move_accepted(self, slots: Ints, accepted: Ints) -> None:
        """Move the KV of accepted rows behind the root's, all layers in one operation.

        slots: int32[node rows] of the node rows' KV, right behind the root's.
        """
        count = len(accepted)
        if accepted.item(-1) != count - 1:
            self.kv_cache.move_slots(slots[accepted], slots[:count].copy())

    def _publish(self, sequence: Sequence) -> None:
        """Let later requests find the KV of full blocks."""
        self.kv_cache.publish(sequence.kv, sequence.tokens[: sequence.length], sequence.computed)


def token_logprobs(
    logits: NDArray[np.float32], accepted: Ints, tokens: Ints, count: int
) -> list[TokenLogprob]:
    """Return the log-probability of each committed token, and the `count` likeliest beside it.

    `logits` [outputs, vocabulary] of one sequence, its root's row first, before any logits
    processor; `accepted` int32[n] node rows; `tokens` int32[n + 1], the last one sampled after
    the last accepted row.
    """
    rows = [0, *(accepted + np.int32(1)).tolist()]
    return [
        token_logprob(logits[row], token, count)
        for row, token in zip(rows, tokens.tolist(), strict=True)
    ]


def token_logprob(row: NDArray[np.float32], token: int, count: int) -> TokenLogprob:
    """Return the log-probability of `token` in one row of logits, with the `count` likeliest."""
    own, ids, logprobs = log_probabilities(row, token, count)
    found = zip(ids.tolist(), logprobs.tolist(), strict=True)
    return TokenLogprob(own, tuple(pair for pair in found if pair[0] >= 0))
