"""What a pass means for its sequences: tokens are committed, told, and end those that are done.

Leaves drafts to `sessions`, books to `accounting`, and what runs next to `target_scheduler`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from outrider.worker.engine.runner import SampledTokens
from outrider.worker.kv.kv_cache import KVCache
from outrider.worker.messages import Finish, Finished, Tokens
from outrider.worker.target.batch import TargetPart
from outrider.worker.target.draft_sessions import TargetSessions
from outrider.worker.target.logprobs import likelihoods
from outrider.worker.target.selection import RowSelector
from outrider.worker.target.sequence import Sequence
from outrider.worker.target.stats import Stats
from outrider.worker.tree.walk import Ints, accept

STREAM_SECONDS = 0.016
"""Tokens that come faster than a screen is drawn travel together: a message to a client costs
server and client about 0.5 ms of processor time whatever its size (Zen 5, grpcio 1.85)."""


@dataclass(slots=True)
class Committer:
    """Moves the sequences of one target on, and ends them."""

    kv_cache: KVCache
    running: list[Sequence]
    """Those that hold KV; one that ends is removed."""
    sessions: TargetSessions
    row_selector: RowSelector
    stats: Stats
    outbox: list[Any]

    def settle(
        self, part: TargetPart, output: SampledTokens, plain: float, started: float, now: float
    ) -> int:
        """Settles one sequence; returns the tokens that decoding committed."""
        sequence, chosen, drawn = part.sequence, part.chosen, output.tokens
        sequence.computed += part.rows.count - len(chosen.nodes)
        if len(drawn) == 0:
            sequence.committed_at = now  # no pass over its root was possible before
            self._publish(sequence)
            return 0
        if (
            sequence.logits_processor is not None
            and (failure := sequence.logits_processor.failure) is not None
        ):
            self.end(sequence, Finish.UNFORMED, now, f"its form cannot be followed: {failure}")
            return 0
        accepted, tokens = accept(
            chosen.paths.parent, chosen.tokens, drawn, sequence.ends, sequence.remaining
        )
        if tokens[-1] < 0:
            self.end(sequence, Finish.FAILED, now, "the model's logits hold no number")
            return 0
        if (count := sequence.submit.logprobs) is not None:
            found = likelihoods(output.logits, accepted, tokens, count)
            sequence.unsent_likelihoods += found
        self._keep(sequence, accepted)
        self.row_selector.learn(sequence, chosen, drawn)
        decoded = len(tokens) if sequence.generated > 0 else 0
        if decoded:
            self.stats.passed(part, len(accepted), drawn, plain, started)
        self._commit(sequence, tokens, now)
        return decoded

    def _keep(self, sequence: Sequence, accepted: Ints) -> None:
        """Moves the KV of accepted rows behind the root's, all layers in one operation."""
        first = sequence.length  # the offset of row 0, the first node
        sources = accepted + np.int32(first)
        destinations = np.arange(first, first + len(accepted), dtype=np.int32)
        if len(accepted) and sources[-1] != destinations[-1]:
            self.kv_cache.move(sequence.kv, sources, destinations)
        sequence.computed += len(accepted)

    def _publish(self, sequence: Sequence) -> None:
        """Lets later requests find the KV of full blocks."""
        self.kv_cache.publish(sequence.kv, sequence.tokens[: sequence.length], sequence.computed)

    def _commit(self, sequence: Sequence, tokens: Ints, now: float) -> None:
        """Tells draft and client, re-roots the mirror, and ends the sequence if it is done."""
        self.sessions.committed(sequence, sequence.position, tokens, now)
        if sequence.generated == 0:
            sequence.first_token = now
        sequence.last_token = now
        sequence.unsent += tokens.tolist()
        self.stats.counters.generation_tokens += len(tokens)
        sequence.unsent_passes += 1
        if now - sequence.sent_at >= STREAM_SECONDS:
            self._stream(sequence, now)
        sequence.append(tokens)
        sequence.reroot(sequence.mirror.commit(tokens), now)
        self._publish(sequence)
        if int(tokens[-1]) in sequence.submit.end_ids:
            self.end(sequence, Finish.STOP, now)
        elif sequence.remaining <= 0:
            self.end(sequence, Finish.LENGTH, now)

    def _stream(self, sequence: Sequence, now: float) -> None:
        """Sends the client what was committed since the last time."""
        ids, passes = tuple(sequence.unsent), sequence.unsent_passes
        likely = tuple(sequence.unsent_likelihoods)
        self.outbox.append(Tokens(sequence.submit.request, ids, passes, likely))
        sequence.unsent, sequence.unsent_passes, sequence.sent_at = [], 0, now
        sequence.unsent_likelihoods = []

    def end(self, sequence: Sequence, finish: Finish, now: float, detail: str = "") -> None:
        """Frees everything that a running sequence holds and says how it ended."""
        self.running.remove(sequence)
        self.kv_cache.free(sequence.kv)
        self.close(sequence, finish, now, detail)

    def close(self, sequence: Sequence, finish: Finish, now: float, detail: str = "") -> None:
        """Says how a sequence that holds no KV any more ended."""
        if sequence.unsent:
            self._stream(sequence, now)
        self.sessions.finished(sequence)
        if not self.running:
            self.row_selector.patience.break_off(now)
        sequence.finish(now)
        self.stats.ended(sequence, finish)
        self.outbox.append(
            Finished(sequence.submit.request, finish, sequence.usage, sequence.timing, detail)
        )
