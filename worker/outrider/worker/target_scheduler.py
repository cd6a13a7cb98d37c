"""What a target runs next, and what a pass means for its sequences.

One sequence a step, first come first served: its prompt in chunks, then verify passes of the root
and the chosen nodes. Which nodes is `choosing`'s to say, drafts are `sessions`' to talk to.
"""

import logging
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from outrider.worker.choosing import NOTHING, Choice, Chooser, pruned
from outrider.worker.kv_pool import KVPool
from outrider.worker.likelihoods import likelihoods
from outrider.worker.messages import (
    Cancel,
    Counters,
    Finish,
    Finished,
    FromPeer,
    LinkDown,
    LinkUp,
    Report,
    SetPolicy,
    Submit,
    Timing,
    Tokens,
    Usage,
)
from outrider.worker.mirror import Mirror
from outrider.worker.rows import Rows, prompt_rows, tree_rows
from outrider.worker.runner import Drawn
from outrider.worker.sampling import Sampling
from outrider.worker.sequence import Sequence
from outrider.worker.sessions import Sessions
from outrider.worker.shaping import Shaper, Shapers, path_tokens
from outrider.worker.tree import Ints, accept

logger = logging.getLogger(__name__)

PROMPT_CHUNK = 64
"""Prompt tokens of one pass."""
COMPILING_SECONDS = 0.005
"""How often an idle engine looks whether the grammar of its next request is compiled."""
STREAM_SECONDS = 0.016
"""Tokens that come faster than a screen is drawn travel together: a message to a client costs
server and client about 0.5 ms of processor time whatever its size (Zen 5, grpcio 1.85)."""


@dataclass(frozen=True, slots=True)
class Step:
    """One pass of one sequence."""

    sequence: Sequence
    rows: Rows
    chosen: Choice
    """The nodes among the rows."""
    started: float

    @property
    def sampling(self) -> Sampling:
        """How the runner draws."""
        return self.sequence.submit.sampling

    @property
    def shaper(self) -> Shaper | None:
        """What the sequence's settings make of the logits first."""
        return self.sequence.shaper

    @property
    def path_tokens(self) -> Ints:
        """[outputs, deepest] each row's tokens after the root, for the shaper."""
        return path_tokens(self.chosen.paths, self.chosen.tokens)


class TargetScheduler:
    """Every request of one target."""

    def __init__(
        self,
        pool: KVPool,
        context: int,
        sessions: Sessions,
        chooser: Chooser,
        outbox: list[Any],
        shapers: Shapers,
    ) -> None:
        self.pool = pool
        self.context = context
        self.sessions = sessions
        self.chooser = chooser
        self.outbox = outbox
        self.shapers = shapers
        self.waiting: deque[Submit] = deque()
        self.running: deque[Sequence] = deque()
        self.counters = Counters()

    def receive(self, message: Any, now: float) -> None:
        """Applies one message of the server process."""
        match message:
            case FromPeer(link=link, messages=messages):
                for part in messages:
                    self.sessions.receive(link, part, now)
            case Submit():
                self.waiting.append(message)
            case Cancel(request=request):
                self._cancel(request, now)
            case SetPolicy(policy=policy):
                self.chooser.set_policy(policy, now)
            case LinkUp(link=link, allowed=allowed, room=room):
                self.sessions.link_up(link, allowed, room)
                self.chooser.restart(now)
            case LinkDown(link=link):
                self.sessions.link_down(link)
            case _:
                raise TypeError(f"a target's engine was sent {message!r}")

    def next(self, now: float, may_wait: bool = True) -> Step | None:
        """The next pass; None if there is no request, or if waiting for growth is worth more."""
        self._admit(now)
        if not self.running:
            return None
        sequence = self.running[0]
        self.sessions.tend(sequence, now)
        if sequence.in_prompt:
            return Step(sequence, self._prompt(sequence), NOTHING, now)
        chosen = self.chooser.choose(sequence, now, may_wait)
        if chosen is None:
            return None
        chosen = within_form(sequence, chosen)
        return Step(sequence, verify_rows(sequence, chosen), chosen, now)

    def patience(self, now: float) -> float | None:
        """Seconds until waiting, for growth or a grammar, ends; None if there is no request."""
        if self.waiting and not self.running:
            return COMPILING_SECONDS
        return self.chooser.seconds_left(now) if self.running else None

    def settle(self, step: Step, output: Drawn, now: float) -> None:
        """Walks, commits and re-roots."""
        sequence, chosen, drawn = step.sequence, step.chosen, output.tokens
        sequence.computed += step.rows.count - len(chosen.nodes)
        if len(drawn) == 0:
            return
        accepted, tokens = accept(
            chosen.paths.parent, chosen.tokens, drawn, sequence.ends, sequence.remaining
        )
        if tokens[-1] < 0:
            self._end(sequence, Finish.FAILED, now, "the model's logits hold no number")
            return
        if (count := sequence.submit.logprobs) is not None:
            found = likelihoods(output.logits, accepted, tokens, count)
            sequence.unsent_likelihoods += found
        self._keep(sequence, accepted)
        self.chooser.learn(sequence, chosen, drawn)
        self._count(step, len(accepted), drawn, now)
        self._commit(sequence, tokens, now)

    def fail(self, step: Step, detail: str, now: float) -> None:
        """Ends the request whose pass could not be run."""
        if step.sequence in self.running:
            self._end(step.sequence, Finish.FAILED, now, detail)

    def report(self) -> Report:
        """Counters so far."""
        self.counters.growth_dropped = self.sessions.dropped
        self.counters.kv_slots_used = self.pool.used
        return Report(self.counters, len(self.running), len(self.waiting))

    def _admit(self, now: float) -> None:
        """Gives waiting requests a region of KV, in order of arrival."""
        while self.waiting and self.shapers.ready(self.waiting[0]):
            if (base := self.pool.allocate()) is None:
                return
            submit = self.waiting.popleft()
            tokens = np.zeros(self.context + 1, np.int32)
            tokens[: len(submit.prompt)] = submit.prompt
            sequence = Sequence(
                submit=submit,
                base=base,
                tokens=tokens,
                length=len(submit.prompt),
                mirror=Mirror(root_position=len(submit.prompt) - 1),
                calibration=self.chooser.calibration_for(submit),
                ends=np.array(submit.end_ids, np.int32),
                shaper=self.shapers.start(submit),
                committed_at=now,
            )
            sequence.usage.prompt_tokens = len(submit.prompt)
            sequence.timing.queued_seconds = now - submit.arrived
            self.running.append(sequence)

    def _prompt(self, sequence: Sequence) -> Rows:
        """The next chunk; the last one ends with the root and draws the first token."""
        end = min(sequence.computed + PROMPT_CHUNK, sequence.length)
        tokens = sequence.tokens[sequence.computed : end]
        last = end == sequence.length
        return prompt_rows(tokens, sequence.computed, sequence.base, wants_output=last)

    def _keep(self, sequence: Sequence, accepted: Ints) -> None:
        """Moves the KV of accepted rows behind the root's, all layers in one operation."""
        first = sequence.base + sequence.length  # the slot of row 0, the first node
        sources = accepted + np.int32(first)
        destinations = np.arange(first, first + len(accepted), dtype=np.int32)
        if len(accepted) and sources[-1] != destinations[-1]:
            self.pool.move(sources, destinations)
        sequence.computed += len(accepted)

    def _count(self, step: Step, accepted: int, drawn: Ints, now: float) -> None:
        """Adds one pass to the usage of its sequence and to the counters."""
        sequence, chosen = step.sequence, step.chosen
        if sequence.generated == 0:
            return  # the prompt's own pass
        usage, rows, guess = sequence.usage, len(chosen.nodes), chosen.first_guess
        spent = now - sequence.committed_at
        plain = (accepted + 1) * self.chooser.plain_seconds(sequence.length)
        usage.passes += 1
        usage.draft_rows += rows
        usage.accepted_rows += accepted
        usage.passes_with_nodes += chosen.offered > 0
        usage.first_guesses += guess >= 0
        usage.first_hits += guess >= 0 and guess == drawn[0]
        sequence.timing.draft_wait_seconds += step.started - sequence.committed_at
        switch = self.chooser.switch
        resting = sequence.submit.speculate and not switch.drafting
        if sequence.session is not None or resting:  # a rest goes on over requests
            self.chooser.observe(chosen, accepted + 1, now - step.started, spent, plain, now)
        else:
            switch.saw_plain(plain, spent)
        plain *= switch.scale
        sequence.timing.plain_seconds += plain
        counters = self.counters
        counters.passes += 1
        counters.tokens += accepted + 1
        counters.draft_rows += rows
        counters.accepted_rows += accepted
        counters.plain_seconds += plain
        counters.spent_seconds += spent

    def _commit(self, sequence: Sequence, tokens: Ints, now: float) -> None:
        """Tells draft and client, re-roots the mirror, and ends the sequence if it is done."""
        self.sessions.committed(sequence, sequence.position, tokens, now)
        if sequence.generated == 0:
            sequence.first_token = now
        sequence.last_token = now
        sequence.unsent += tokens.tolist()
        sequence.unsent_passes += 1
        if now - sequence.sent_at >= STREAM_SECONDS:
            self._stream(sequence, now)
        sequence.append(tokens)
        sequence.reroot(sequence.mirror.commit(tokens), now)
        if int(tokens[-1]) in sequence.submit.end_ids:
            self._end(sequence, Finish.STOP, now)
        elif sequence.remaining <= 0:
            self._end(sequence, Finish.LENGTH, now)

    def _stream(self, sequence: Sequence, now: float) -> None:
        """Sends the client what was committed since the last time."""
        ids, passes = tuple(sequence.unsent), sequence.unsent_passes
        likely = tuple(sequence.unsent_likelihoods)
        self.outbox.append(Tokens(sequence.submit.request, ids, passes, likely))
        sequence.unsent, sequence.unsent_passes, sequence.sent_at = [], 0, now
        sequence.unsent_likelihoods = []

    def _end(self, sequence: Sequence, finish: Finish, now: float, detail: str = "") -> None:
        """Frees everything that a sequence holds and says how it ended."""
        if sequence.unsent:
            self._stream(sequence, now)
        self.running.remove(sequence)
        self.pool.free(sequence.base)
        self.sessions.finished(sequence)
        self.chooser.patience.stop(0.0, 0.0, now)
        if finish is Finish.CANCELLED:
            self.counters.requests_cancelled += 1
        else:
            self.counters.requests_finished += 1
        sequence.finish(now)
        self.counters.draft_wait_seconds += sequence.timing.draft_wait_seconds
        self._log(sequence, finish)
        self.outbox.append(
            Finished(sequence.submit.request, finish, sequence.usage, sequence.timing, detail)
        )

    def _log(self, sequence: Sequence, finish: Finish) -> None:
        """How the request went, and what growth takes to come, in one sentence."""
        usage, timing, patience = sequence.usage, sequence.timing, self.chooser.patience
        logger.info(
            "request %d: %s after %d tokens in %d passes over %d node rows, %d of them right; "
            "%.0f ms, of which %.0f before passes; first growth takes %.1f ms, the next %.1f ms; "
            "waits brought %.1f of %.1f tokens hoped for; drafting is %s",
            sequence.submit.request,
            finish.value,
            usage.completion_tokens,
            usage.passes,
            usage.draft_rows,
            usage.accepted_rows,
            1e3 * timing.decode_seconds,
            1e3 * timing.draft_wait_seconds,
            1e3 * patience.latency,
            1e3 * patience.period,
            patience.realised_gain,
            patience.predicted_gain,
            self.chooser.switch.state.value,
        )

    def _cancel(self, request: int, now: float) -> None:
        for sequence in self.running:
            if sequence.submit.request == request:
                self._end(sequence, Finish.CANCELLED, now)
                return
        for submit in self.waiting:
            if submit.request == request:
                self.waiting.remove(submit)
                self.counters.requests_cancelled += 1
                waited = Timing(total_seconds=now - submit.arrived)
                self.outbox.append(Finished(request, Finish.CANCELLED, Usage(), waited))
                return


def within_form(sequence: Sequence, chosen: Choice) -> Choice:
    """A choice without the nodes that the form of the answer forbids."""
    if sequence.shaper is None or len(chosen.nodes) == 0:
        return chosen
    allowed = sequence.shaper.allowed(chosen.paths, chosen.tokens)
    return chosen if allowed is None else pruned(chosen, allowed, sequence)


def verify_rows(sequence: Sequence, chosen: Choice) -> Rows:
    """Row 0 is the root; the chosen nodes lie behind it, in order."""
    root, slot = sequence.position, sequence.base + sequence.position
    if len(chosen.nodes) == 0:
        token = sequence.tokens[root : root + 1]
        return prompt_rows(token, root, sequence.base, wants_output=True)
    paths = chosen.paths
    ancestors = np.zeros((len(chosen.nodes) + 1, max(1, paths.ancestors.shape[1])), np.int32)
    ancestors[1:, : paths.ancestors.shape[1]] = paths.ancestors + np.int32(slot + 1)
    depth = np.concatenate([ZERO, paths.depth])
    return tree_rows(
        tokens=np.concatenate([sequence.tokens[root : root + 1], chosen.tokens]),
        positions=depth + np.int32(root),
        slots=np.arange(slot, slot + len(depth), dtype=np.int32),
        base=sequence.base,
        prefix=root + 1,
        ancestors=ancestors,
        depth=depth,
    )


ZERO = np.zeros(1, np.int32)
