"""What a target runs next, and what a pass means for its sequences.

Each step runs the root of every sequence that is past its prompt, the nodes that `choosing` picks
for them, and chunks of the prompts of others. Leaves drafts to `sessions`, books to `accounting`,
the order of those that wait to `waiting`.
"""

import bisect
from collections.abc import Sequence as Several
from typing import Any

import numpy as np

from outrider.worker.accounting import Accounts
from outrider.worker.choosing import NOTHING, Choice, Chooser, pruned
from outrider.worker.kv_pool import KVPool
from outrider.worker.likelihoods import likelihoods
from outrider.worker.messages import (
    Cancel,
    Finish,
    Finished,
    FromPeer,
    LinkDown,
    LinkUp,
    Report,
    SetPolicy,
    Submit,
    Tokens,
)
from outrider.worker.mirror import Mirror
from outrider.worker.region import BLOCK, blocks_for
from outrider.worker.rows import Rows, prompt_rows, tree_rows
from outrider.worker.runner import Drawn
from outrider.worker.sequence import Sequence
from outrider.worker.sessions import Sessions
from outrider.worker.shaping import Shapers
from outrider.worker.step import Part, Step
from outrider.worker.tree import Ints, accept
from outrider.worker.waiting import Waiting, seniority

PROMPT_CHUNK = 64
"""Prompt tokens of one pass."""
COMPILING_SECONDS = 0.005
"""How often an idle engine looks whether the grammar of its next request is compiled."""
STREAM_SECONDS = 0.016
"""Tokens that come faster than a screen is drawn travel together: a message to a client costs
server and client about 0.5 ms of processor time whatever its size (Zen 5, grpcio 1.85)."""
LEAST_CHUNK = 16
"""Rows of a pass that are left for prompts, if there are any."""
ZERO = np.zeros(1, np.int32)


class TargetScheduler:
    """Every request of one target."""

    def __init__(
        self,
        pool: KVPool,
        context: int,
        max_running: int,
        sessions: Sessions,
        chooser: Chooser,
        outbox: list[Any],
        shapers: Shapers,
    ) -> None:
        self.pool = pool
        self.context = context
        self.max_running = max_running
        self.sessions = sessions
        self.chooser = chooser
        self.outbox = outbox
        self.shapers = shapers
        self.waiting = Waiting()
        self.running: list[Sequence] = []
        """In order of seniority."""
        self.accounts = Accounts(chooser)
        self._turn = 0
        """Where the next pass begins when one cannot hold them all."""

    def receive(self, message: Any, now: float) -> None:
        """Applies one message of the server process."""
        match message:
            case FromPeer(link=link, messages=messages):
                for part in messages:
                    self.sessions.receive(link, part, now)
            case Submit():
                self.waiting.put(self._sequence(message))
            case Cancel(request=request, finish=finish):
                self._cancel(request, finish, now)
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
        self._expire(now)
        self._admit(now)
        if not self.running:
            self.accounts.settled_at = None
            return None
        decoding, prompts = self._share_out()
        for sequence in self.running:
            self.sessions.tend(sequence, now)
        prompt_count = sum(part.rows.count for part in prompts)
        chosen = self.chooser.choose(decoding, prompt_count, now, may_wait)
        if chosen is None:
            return None
        verified = [verified_part(*pair) for pair in zip(decoding, chosen.choices, strict=True)]
        return Step((*verified, *prompts), len(verified), chosen.expected_seconds, now)

    def patience(self, now: float) -> float | None:
        """Seconds until waiting, for growth or a grammar, ends; None if there is no request."""
        if self.waiting and not self.running:
            return COMPILING_SECONDS
        return self.chooser.seconds_left(now) if self.running else None

    def settle(self, step: Step, outputs: Several[Drawn], now: float) -> None:
        """Walks, commits and re-roots, part by part."""
        plain = self.accounts.plain(step.decoding, step.prompt_rows)
        tokens = 0
        for part, drawn in zip(step.parts, outputs, strict=True):
            tokens += self._settle(part, drawn, plain.step, step.started, now)
        self.accounts.stepped(step, tokens, plain, now)

    def fail(self, step: Step, detail: str, now: float) -> None:
        """Ends the requests whose pass could not be run."""
        for part in step.parts:
            if part.sequence in self.running:
                self._end(part.sequence, Finish.FAILED, now, detail)

    def report(self) -> Report:
        """Counters so far."""
        counters, patience = self.accounts.counters, self.chooser.patience
        counters.draft_wait_seconds = patience.seconds
        counters.wait_gain_predicted = patience.predicted_gain
        counters.wait_gain_realised = patience.realised_gain
        counters.growth_dropped = self.sessions.dropped
        counters.kv_slots_used = self.pool.used * BLOCK
        counters.kv_slots = self.pool.blocks * BLOCK
        return Report(
            counters,
            len(self.running),
            len(self.waiting),
            drafting=self.chooser.drafting,
            last_rows=self.accounts.last_rows,
            last_node_rows=self.accounts.last_node_rows,
        )

    def _sequence(self, submit: Submit) -> Sequence:
        """A request before it holds any KV."""
        tokens = np.zeros(self.context + 1, np.int32)
        tokens[: len(submit.prompt)] = submit.prompt
        sequence = Sequence(
            submit=submit,
            tokens=tokens,
            length=len(submit.prompt),
            mirror=Mirror(root_position=len(submit.prompt) - 1),
            calibration=self.chooser.calibration_for(submit),
            ends=np.array(submit.end_ids, np.int32),
        )
        sequence.usage.prompt_tokens = len(submit.prompt)
        return sequence

    def _admit(self, now: float) -> None:
        """Gives KV to those that wait, in order; but nobody waits for another one's grammar."""
        while len(self.running) < self.max_running:
            sequence = self.waiting.first(self.shapers.ready)
            if sequence is None:
                return
            room = sequence.length + self._ahead(sequence)
            if self.running and not self._fits(sequence, room):
                return
            region = self.pool.admit(sequence.committed(), room)
            if region is None:
                return
            self.waiting.take(sequence)
            if not sequence.started:
                sequence.shaper = self.shapers.start(sequence.submit)
                self.accounts.prompted(sequence.length, region.cached)
            sequence.admitted(region, now)
            bisect.insort(self.running, sequence, key=seniority)

    def _fits(self, sequence: Sequence, room: int) -> bool:
        """Whether those that run keep a block each, or it would soon take what they go on with."""
        spare = self.pool.available - len(self.running)
        if blocks_for(room) <= spare:
            return True  # whatever it may share with others
        return self.pool.lacking(sequence.committed(), room) <= spare

    def _share_out(self) -> tuple[list[Sequence], list[Part]]:
        """Who decodes in the next pass, and the prompt chunks that go along."""
        decoding = [s for s in tuple(self.running) if not s.in_prompt and self._has_room(s)]
        prompts = [s for s in self.running if s.in_prompt]
        most = self.chooser.most_rows
        if prompts:
            most -= min(LEAST_CHUNK, most // 2)
        if len(decoding) > most:  # in turns
            self._turn = (self._turn + most) % len(decoding)
            decoding = (decoding[self._turn :] + decoding[: self._turn])[:most]
        left = min(PROMPT_CHUNK, self.chooser.most_rows - len(decoding))
        parts = []
        for sequence in prompts:
            if left == 0:
                break
            parts.append(Part(sequence, chunk_rows(sequence, left), NOTHING))
            left -= parts[-1].rows.count
        return decoding, parts

    def _has_room(self, sequence: Sequence) -> bool:
        """Makes room for a verify pass; the least senior give theirs back, itself at the last."""
        room = sequence.length + self._ahead(sequence)
        while sequence.region is not None and not self.pool.extend(sequence.region, room):
            self._put_back(self.running[-1])
        return sequence.region is not None

    def _put_back(self, sequence: Sequence) -> None:
        """Preempts a request: it computes its tokens again when there is room, to the same text."""
        assert sequence.region is not None
        self.running.remove(sequence)
        self.pool.free(sequence.region)
        sequence.region, sequence.computed = None, 0
        self.waiting.put(sequence)
        self.accounts.counters.preemptions += 1

    def _ahead(self, sequence: Sequence) -> int:
        """Slots that a pass may need behind the committed tokens."""
        return 1 + (self.chooser.policy.max_rows if sequence.remaining > 1 else 0)

    def _settle(self, part: Part, output: Drawn, plain: float, started: float, now: float) -> int:
        """Settles one sequence; returns the tokens that decoding committed."""
        sequence, chosen, drawn = part.sequence, part.chosen, output.tokens
        sequence.computed += part.rows.count - len(chosen.nodes)
        if len(drawn) == 0:
            self._publish(sequence)
            return 0
        if sequence.shaper is not None and (failure := sequence.shaper.failure) is not None:
            self._end(sequence, Finish.UNFORMED, now, f"its form cannot be followed: {failure}")
            return 0
        accepted, tokens = accept(
            chosen.paths.parent, chosen.tokens, drawn, sequence.ends, sequence.remaining
        )
        if tokens[-1] < 0:
            self._end(sequence, Finish.FAILED, now, "the model's logits hold no number")
            return 0
        if (count := sequence.submit.logprobs) is not None:
            found = likelihoods(output.logits, accepted, tokens, count)
            sequence.unsent_likelihoods += found
        self._keep(sequence, accepted)
        self.chooser.learn(sequence, chosen, drawn)
        decoded = len(tokens) if sequence.generated > 0 else 0
        if decoded:
            self.accounts.passed(part, len(accepted), drawn, plain, started)
        self._commit(sequence, tokens, now)
        return decoded

    def _keep(self, sequence: Sequence, accepted: Ints) -> None:
        """Moves the KV of accepted rows behind the root's, all layers in one operation."""
        first = sequence.length  # the offset of row 0, the first node
        sources = accepted + np.int32(first)
        destinations = np.arange(first, first + len(accepted), dtype=np.int32)
        if len(accepted) and sources[-1] != destinations[-1]:
            self.pool.move(sequence.kv, sources, destinations)
        sequence.computed += len(accepted)

    def _publish(self, sequence: Sequence) -> None:
        """Lets later requests find the KV of full blocks."""
        self.pool.publish(sequence.kv, sequence.tokens[: sequence.length], sequence.computed)

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
        self.accounts.counters.generation_tokens += len(tokens)
        sequence.append(tokens)
        sequence.reroot(sequence.mirror.commit(tokens), now)
        self._publish(sequence)
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
        """Frees everything that a running sequence holds and says how it ended."""
        self.running.remove(sequence)
        self.pool.free(sequence.kv)
        self._close(sequence, finish, now, detail)

    def _close(self, sequence: Sequence, finish: Finish, now: float, detail: str = "") -> None:
        """Says how a sequence that holds no KV any more ended."""
        if sequence.unsent:
            self._stream(sequence, now)
        self.sessions.finished(sequence)
        if not self.running:
            self.chooser.patience.stop(0.0, 0.0, now)
        sequence.finish(now)
        self.accounts.ended(sequence, finish)
        self.outbox.append(
            Finished(sequence.submit.request, finish, sequence.usage, sequence.timing, detail)
        )

    def _expire(self, now: float) -> None:
        """Ends what has waited for its first step for too long, unrun."""
        for sequence in self.waiting.expired(now):
            waited = now - sequence.submit.arrived
            self._close(
                sequence, Finish.EXPIRED, now, f"no room for this request in {waited:.1f} s"
            )

    def _cancel(self, request: int, finish: Finish, now: float) -> None:
        for sequence in self.running:
            if sequence.submit.request == request:
                self._end(sequence, finish, now)
                return
        waiting = self.waiting.remove(request)
        if waiting is not None:
            self._close(waiting, finish, now)


def chunk_rows(sequence: Sequence, most: int) -> Rows:
    """The next chunk of a prompt; the last one ends with the root and draws a token."""
    end = min(sequence.computed + most, sequence.length)
    tokens = sequence.tokens[sequence.computed : end]
    last = end == sequence.length
    return prompt_rows(tokens, sequence.computed, sequence.kv, wants_output=last)


def verified_part(sequence: Sequence, chosen: Choice) -> Part:
    """A verify pass of one sequence, without nodes that the form of the answer forbids."""
    if sequence.shaper is not None and len(chosen.nodes) > 0:
        allowed = sequence.shaper.allowed(chosen.paths, chosen.tokens)
        if allowed is not None:
            chosen = pruned(chosen, allowed, sequence)
    return Part(sequence, verify_rows(sequence, chosen), chosen)


def verify_rows(sequence: Sequence, chosen: Choice) -> Rows:
    """Row 0 is the root; the chosen nodes lie behind it, in order."""
    root = sequence.position
    if len(chosen.nodes) == 0:
        return prompt_rows(sequence.tokens[root : root + 1], root, sequence.kv, wants_output=True)
    paths = chosen.paths
    ancestors = np.zeros((len(chosen.nodes) + 1, max(1, paths.ancestors.shape[1])), np.int32)
    ancestors[1:, : paths.ancestors.shape[1]] = paths.ancestors + np.int32(root + 1)
    depth = np.concatenate([ZERO, paths.depth])
    return tree_rows(
        tokens=np.concatenate([sequence.tokens[root : root + 1], chosen.tokens]),
        positions=depth + np.int32(root),
        offsets=np.arange(root, root + len(depth), dtype=np.int32),
        region=sequence.kv,
        prefix=np.full(len(depth), root + 1, np.int32),
        ancestors=ancestors,
        depth=depth,
    )
