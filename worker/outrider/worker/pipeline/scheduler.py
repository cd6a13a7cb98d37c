"""Scheduler of a pipelined target: messages to its leader, and what that commits to clients.

Does no I/O and waits for nobody. Leaves rows, segments and KV to `leader`, and all that it shares
with the scheduler of a target in one piece to `target`: how requests come, wait and end, their
sessions, and what drafts, clients and counters learn of a pass. Only this differs:

- *Where a node's KV lies.* In one piece it lies behind the root's for one pass, and accepted rows
  move up at once. Here node rows are in several segments, in tree slots of their own, until the
  stages are told which are committed; so blocks, admission and preemption are the leader's.
- *Results come later.* In one piece a step plans one pass of all sequences and settles it before
  the next is planned. Here segments leave while others are under way, and what comes back moves
  each root by itself; so there is no batch, no wait for growth, and gain is measured over the time
  between results, with the times that the stages measured.
"""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

from outrider.contract.inference import Timing, Usage
from outrider.worker.errors import TooLong
from outrider.worker.kv.block_pool import BlockPool
from outrider.worker.messages import (
    EngineReport,
    Finish,
    Finished,
    SegmentTraced,
    Submit,
    Timeline,
)
from outrider.worker.pipeline.draft_control import PipelinedDraftControl, SourceStep
from outrider.worker.pipeline.leader import Leader
from outrider.worker.pipeline.planner import PipelinePlanner
from outrider.worker.pipeline.records import Record, Results, Segment
from outrider.worker.pipeline.segment_log import LoggedSegment, RequestRows, SegmentLog
from outrider.worker.pipeline.sequence import PipelinedSequence
from outrider.worker.pipeline.text_search import TextSearch
from outrider.worker.target.commit import NO_NUMBER, RequestCommitter
from outrider.worker.target.pass_record import PassRecord
from outrider.worker.target.request import stream
from outrider.worker.target.request_scheduler import RequestScheduler
from outrider.worker.target.sessions import TargetSessions
from outrider.worker.target.stats import RequestStats

FAILURES = {
    Finish.FAILED: NO_NUMBER,
    Finish.GRAMMAR_FAILED: "its form cannot be followed",
}
"""What clients are told of an answer that ends so."""
GIVEN_UP = (
    "the stages were lost {losses} times while they computed this request and had no token of it, "
    "the last time while they computed nothing else: {reason}"
)
"""What clients are told of a request that takes its stages down."""
MAX_TRACED_SEGMENTS = 256
"""Most traced segments of a request: its first. Each is a span, and one more for each stage."""


class PipelinedScheduler(RequestScheduler[PipelinedSequence]):
    """Every request of one pipelined target."""

    def __init__(
        self,
        leader: Leader,
        planner: PipelinePlanner,
        sessions: TargetSessions[PipelinedDraftControl],
        outbox: list[Any],
    ) -> None:
        super().__init__(leader.waiting, leader.running, outbox)
        self.leader = leader
        leader.share_prompts = planner.share_prompts
        self.planner = planner
        self.sessions = sessions
        self.control = sessions.control
        self.stats = RequestStats(self.control)
        self.committer = RequestCommitter(sessions, self.stats, outbox)
        self.log = leader.log = SegmentLog(planner.stages)

    @property
    def kv_blocks(self) -> tuple[int, int]:
        """KV blocks that are used, and all of them."""
        return self.leader.pool.used, self.leader.pool.blocks

    @property
    def idle(self) -> bool:
        """True if no request runs."""
        return not self.running

    def submit(self, submit: Submit, now: float) -> None:
        """Let a request wait; end one that would never fit."""
        try:
            self.leader.submit(submit)
        except TooLong as error:
            timing = Timing(total_seconds=now - submit.arrived)
            finished = Finished(submit.request, Finish.FAILED, Usage(), timing, str(error))
            self.outbox.append(finished)

    def end(self, request: PipelinedSequence, finish: Finish, now: float) -> None:
        """End a request that runs and free its KV."""
        self.leader.end(request)
        self.committer.close(request, finish, now)

    def settle(self, results: Results, now: float) -> None:
        """Commit what the results of a segment decide."""
        logged = self.log.returned(results, now)
        if logged is not None:
            self.planner.saw_results(results, logged.sent)
            self.outbox += traced(logged)
        decoding, tokens = self._decoding(), 0
        plain = self.planner.plain_seconds(len(decoding))
        drafted = any(_measures_drafting(one, self.control) for one in decoding)
        for record in self.leader.receive(results):
            decoded = self.apply(record, now)
            if record.sequence in decoding:
                timing = record.sequence.timing
                timing.plain_seconds += decoded * plain * self.control.account.present.scale
                tokens += decoded
        if decoding:
            self.control.enter(len(decoding), now)
        if decoding and self.planner.round_trip:
            costs = self.planner.row_costs(len(decoding))
            step = SourceStep(self.stats.take_step(), costs, plain)
            spent = self.control.count(tokens * plain, drafted, self.planner.round_trip, now, step)
            self.stats.count_local_share(self.control.local.share)
            self.stats.count_gain(tokens * plain, spent)
        else:
            self.control.settled_at = now
        most = max(1, len(decoding)) * (1 + self.control.policy.max_rows)
        self.leader.plan = self.planner.replan(len(decoding), most, now)

    def apply(self, record: PassRecord[PipelinedSequence], now: float) -> int:
        """Apply results that have moved a root; return the tokens that they committed."""
        sequence, finish = record.sequence, record.finish
        if len(record.tokens):
            self.committer.commit(record, now)
            sequence.committed_at, sequence.growths = now, 0
        if finish is not None:
            self.committer.close(sequence, finish, now, FAILURES.get(finish, ""))
        return len(record.tokens)

    def stream(self, now: float) -> None:
        """Send the clients what is due."""
        stream((*self.running, *self.waiting), self.outbox, now)

    def fill(self, now: float) -> Iterator[Record]:
        """Send what is to leave now; yields the records for the first stage, in order."""
        for sequence in (*self.running, *self.waiting):
            self._find_nodes(sequence)
        if self.idle:
            self.control.settled_at = now  # a time without any request counts for nothing
        trees: list[PipelinedSequence] = []
        while now >= self.planner.due and self.leader.fill():
            trees += self._note_sent(now)
        for sequence in self.running:
            if not sequence.started:
                cached = sequence.kv.block_table.cached
                sequence.start(cached, now)
                self.stats.count_prompt(sequence.prompt_length, cached)
            self.sessions.update(sequence, now)
        while self.leader.outgoing:
            yield self.leader.outgoing.popleft()
        for sequence in trees:
            self.planner.saw_tree(sequence)  # no stage waits for it

    def begin_group(self, pool: BlockPool, rows: int, now: float) -> None:
        """Begin with stages that know nothing, and take segments of at most so many rows: requests
        go on from their committed tokens, but for those that no longer fit."""
        self.leader.restart(pool)
        self.leader.plan = self.planner.begin(rows)
        for sequence in tuple(self.waiting):
            try:
                self.leader.check_fits(sequence.submit)
            except TooLong as error:
                self.waiting.take(sequence)
                detail = f"the stages came back with less room: {error}"
                self.committer.close(sequence, Finish.FAILED, now, detail)

    def lose_group(self, reason: str, now: float) -> None:
        """Take all requests back: the stages have lost them. Nothing may be sent until
        `begin_group`. One that has lost several groups, the last one alone, ends here."""
        pool = self.leader.pool
        self.log.lose_group()
        self.planner.restart()
        empty = BlockPool(pool.blocks, pool.longest, prefix_cache=pool.prefix_cache)
        for sequence in self.leader.restart(empty):
            detail = GIVEN_UP.format(losses=sequence.losses, reason=reason)
            self.committer.close(sequence, Finish.FAILED, now, detail)
        for sequence in self.waiting:
            if sequence.unsent:
                sequence.send_tokens(self.outbox, now)

    def max_wait(self, now: float) -> float | None:
        """Return the seconds until a request has waited for too long, or the next segment is due;
        None: no limit."""
        due = self.planner.due if self.planner.due > now else math.inf
        soonest = min(self.waiting.next_expiry(), due)
        return None if soonest == math.inf else max(0.0, soonest - now)

    def report(self) -> EngineReport:
        """Return the counters so far, with those of segments and stages."""
        self.stats.counters.preemptions = self.leader.preemptions
        under_way = self.leader.segments
        totals = dataclasses.replace(
            self.log.totals, segments_in_flight=under_way.busy, rows_in_flight=under_way.rows
        )
        stages = tuple(map(dataclasses.replace, self.log.stages))
        return dataclasses.replace(RequestScheduler.report(self), segments=totals, stages=stages)

    def timeline(self) -> Timeline:
        """Return what the stages did to the last segments."""
        return Timeline(self.log.spans())

    def _find_nodes(self, sequence: PipelinedSequence) -> None:
        """Say which sources' nodes get rows; read the text, and search it once there is an answer.

        What waits for a place is not read: it may be cancelled before it has one.
        """
        policy = self.control.policy
        sequence.sources = self.control.sources(sequence.submit)
        if not self.control.local_sources(sequence.submit) or sequence.placed is None:
            return
        sequence.text = sequence.text or TextSearch.of(sequence)
        if sequence.generated:
            sequence.text.search(sequence.sources, policy.max_rows, policy.depth)
        else:
            sequence.text.read_on()

    def _decoding(self) -> list[PipelinedSequence]:
        """Return the requests whose prompts, and all that they had written when they were last
        taken back, have been computed."""
        return [one for one in self.running if one.kv.decodes]

    def _note_sent(self, now: float) -> list[PipelinedSequence]:
        """Note the segment that the leader has just put behind all other records; return the
        sequences that decode in it."""
        segment = self.leader.outgoing[-1]
        assert isinstance(segment, Segment)
        self.log.sent(segment, self._traced_rows(segment), now)
        self.planner.sent(segment.count, now)
        self.stats.count_rows(segment.count, int(segment.ancestors.any(1).sum()))
        served = set(segment.sequence.tolist())
        return [one for one in self._decoding() if one.kv.number in served]

    def _traced_rows(self, segment: Segment) -> tuple[RequestRows, ...]:
        """Return the rows of requests that are traced, and have not been in too many segments."""
        found = []
        for sequence in self.running:
            if sequence.submit.traceparent and sequence.traced_segments < MAX_TRACED_SEGMENTS:
                own = segment.rows[segment.sequence == sequence.kv.number]
                if len(own):
                    sequence.traced_segments += 1
                    found.append(RequestRows(sequence.submit.request, int(own[0]), len(own)))
        return tuple(found)


def traced(logged: LoggedSegment) -> Iterator[SegmentTraced]:
    """Yield for each traced request what its span of a segment shows."""
    for request, first_row, rows in logged.traced:
        yield SegmentTraced(
            request=request,
            segment=logged.number,
            first_row=first_row,
            rows=rows,
            segment_rows=logged.rows,
            sent=logged.sent,
            back=logged.back,
            visits=logged.stage_visits,
        )


def _measures_drafting(sequence: PipelinedSequence, control: PipelinedDraftControl) -> bool:
    """True if its passes measure the gain of drafting, or of a rest that the switch has begun."""
    return sequence.session is not None or control.rests(sequence.submit)
