"""Baselines that go in turns, with FlowSpec's barrier: every stage hears each turn what was pruned.

In a turn the draft's rank takes the rows that the last stage has finished, walks, tells all stages
what dies, and sends the next segment; a stage waits for that message before it computes what it was
given for the turn. Sides: `Pruned` (one tree until nothing of it is left), `FlowSpec` (the tree
grows with each walk), `LayerAStep` (PipeDec). A written-down arithmetic of these turns, not their
code; messages have the sizes of FlowSpec's format.
"""

import abc
import math
from collections import deque

import numpy as np

from bench.flowspec.draft_tree import BestTree, best_tree
from bench.flowspec.language import Language, step
from bench.flowspec.leader_host import PROMPT
from bench.flowspec.outcome import Outcome, Span
from bench.flowspec.setting import Setting
from outrider.worker.tree.walk import ROOT

INITIAL_NODES, INITIAL_DEPTH = 80, 6
GROWN_NODES = 64
TOKEN_BYTES, MASK_BYTES, PRUNE_BYTES = 16, 4, 8
"""A row's token and position in int64; one place of its mask in fp32; a node kept, in int64."""
HEADER_BYTES = 40
RESULT_BYTES = 8


class PaperTree:
    """Nodes by number; the root is a node too."""

    def __init__(self, root: int) -> None:
        self.parent = [ROOT]
        self.token = [ROOT]
        self.key = [root]
        self.root = 0
        self._children: dict[tuple[int, int], int] = {}

    def child(self, node: int, token: int) -> int | None:
        return self._children.get((node, token))

    def merge(self, grown: BestTree) -> list[int]:
        """Add a tree that hangs on the root; return the nodes that are new, in its order."""
        numbers, new = {ROOT: self.root}, []
        for at, (above, token) in enumerate(
            zip(grown.parents.tolist(), grown.tokens.tolist(), strict=True)
        ):
            parent = numbers[above]
            number = self.child(parent, token)
            if number is None:
                number = self.add(parent, token)
                new.append(number)
            numbers[at] = number
        return new

    def add(self, parent: int, token: int) -> int:
        """Add a node."""
        number = len(self.key)
        self.parent.append(parent)
        self.token.append(token)
        self.key.append(step(self.key[parent], token))
        self._children[parent, token] = number
        return number

    def lives(self, node: int) -> bool:
        """True if the root is above a node, or is it."""
        while node > self.root:
            node = self.parent[node]
        return node == self.root


class LockStep(abc.ABC):
    """One answer, in turns."""

    def __init__(self, setting: Setting, language: Language) -> None:
        self.setting = setting
        self.language = language
        self.text: list[int] = [int(language.text[PROMPT])]
        self.tree = PaperTree(language.keys[PROMPT])
        self.waiting: deque[list[int]] = deque()
        """Segments that have not left."""
        self._verified: set[int] = set()
        self._places: list[list[int]] = [[] for _ in range(setting.count)]
        """What each stage is given for this turn."""
        self._given = [0.0] * setting.count
        """When it has that."""
        self._free = [0.0] * setting.count
        self._bytes = 0
        self._spans: list[Span] = []
        self._turns = self._walks = 0
        self.first: tuple[float, int, int] = (math.nan, 0, 0)
        """Time, tokens and bytes at the first walk."""

    @property
    def finished(self) -> bool:
        return len(self.text) >= len(self.language.text) - PROMPT

    @abc.abstractmethod
    def restart(self) -> float:
        """Draft a new tree, fill `waiting`; return the seconds that it takes."""

    @abc.abstractmethod
    def grow(self, walked: bool) -> float:
        """Extend the tree after a walk; return the seconds that it takes."""

    @property
    @abc.abstractmethod
    def note(self) -> str:
        """What was chosen."""

    def run(self) -> Outcome:
        """Answer."""
        now = self._send_next(self.restart())
        self._turn(0.0)
        while not self.finished:
            now = self._decide(now)
        wanted = len(self.language.text) - PROMPT
        began, tokens, sent = self.first
        return Outcome(
            text=np.array(self.text[:wanted], np.int32),
            tokens=wanted - tokens,
            seconds=now - began,
            commits=self._walks,
            bytes=self._bytes - sent,
            spans=self._spans,
            stages=self.setting.count,
            began=began,
            note=self.note,
        )

    def _decide(self, before: float) -> float:
        """Walk what has come back, tell the stages, let the turn happen; return the time."""
        result, arrived = self._result
        now = max(before, arrived) + self.setting.host
        self._verified.update(result)
        walked, hit = self._walk() if any(map(self.tree.lives, result)) else (0, True)
        if walked:
            self._note_walk(now)
        if self.finished:
            return now
        if not hit:
            return self._refill(now)
        self._prune()
        told = self._tell(now, walked + sum(map(len, self._places)))
        spent = self.grow(walked > 0)
        self._send_next(now + spent)
        self._turn(told)
        return now + spent

    def _note_walk(self, now: float) -> None:
        """Count a walk; the clock, tokens and bytes run from the first one on."""
        if math.isnan(self.first[0]):
            self.first = (now, len(self.text), self._bytes)
        else:
            self._walks += 1

    def _walk(self) -> tuple[int, bool]:
        """Commit as far as rows are verified; return tokens, and whether the root is a node."""
        tree, count = self.tree, 0
        while tree.root in self._verified:
            token = self.language.next_token(tree.key[tree.root])
            self.text.append(token)
            count += 1
            child = tree.child(tree.root, token)
            if child is None:
                self.tree = PaperTree(step(tree.key[tree.root], token))
                return count, False
            tree.root = child
        return count, True

    def _prune(self) -> None:
        self._places = [[n for n in nodes if self.tree.lives(n)] for nodes in self._places]
        kept = ([n for n in nodes if self.tree.lives(n)] for nodes in self.waiting)
        self.waiting = deque(nodes for nodes in kept if nodes)

    def _refill(self, now: float) -> float:
        """Start anew after a miss: everything on its way is dead."""
        count = self.setting.count
        self._verified.clear()
        self.waiting.clear()
        self._places = [[] for _ in range(count)]
        told = self._tell(now, 1)
        now = self._send_next(now + self.restart())
        self._turn(told)
        return now

    def _send_next(self, now: float) -> float:
        """Give the first stage its segment for the next turn."""
        nodes = self.waiting.popleft() if self.waiting else []
        self._places[0] = nodes
        self._given[0] = now + self._carry(0, len(nodes))
        return now

    def _tell(self, now: float, kept: int) -> float:
        """Return when all stages know what was pruned."""
        size = self.setting.count * (HEADER_BYTES + PRUNE_BYTES * kept)
        self._bytes += size
        links = self.setting.links
        return now + size * 8 / links.bits_per_second + links.delay

    def _carry(self, link: int, rows: int) -> float:
        """Send so many rows over a link; return the seconds until they are there."""
        count = self.setting.count
        if link == count:
            size = HEADER_BYTES + RESULT_BYTES * rows
        else:
            mask = MASK_BYTES * (INITIAL_NODES + 1)
            vector = 2 * self.setting.hidden if link else 0
            size = HEADER_BYTES + rows * (TOKEN_BYTES + mask + vector)
        self._bytes += size
        links = self.setting.links
        return size * 8 / links.bits_per_second + links.delay

    def _turn(self, told: float) -> None:
        """Let every stage compute what it was given, and pass it on."""
        count, given, free = self.setting.count, self._given, self._free
        places = self._places
        next_given = [math.inf] * count
        for stage in range(count):
            rows = len(places[stage])
            begin = max(given[stage], told, free[stage])
            free[stage] = begin + self.setting.stage(stage, rows)
            if rows:
                self._spans.append(Span(stage, begin, free[stage], rows))
            arrives = free[stage] + self._carry(stage + 1, rows)
            if stage + 1 < count:
                next_given[stage + 1] = arrives
            else:
                self._result = (places[stage], arrives)
        self._turns += 1
        self._given = next_given
        self._places = [[], *places[:-1]]


class Pruned(LockStep):
    """One tree, cut into segments, pruned as results come; a new one when nothing of it is left."""

    def __init__(self, setting: Setting, language: Language, segment: int, nodes: int) -> None:
        super().__init__(setting, language)
        self.segment, self.nodes = segment, nodes

    @property
    def note(self) -> str:
        return f"{self.nodes} nodes, segments of {self.segment}"

    def restart(self) -> float:
        """Draft a tree as deep as the paper's, and cut it."""
        root = self.tree.key[self.tree.root]
        grown = best_tree(self.language, root, self.nodes, INITIAL_DEPTH)
        self._cut([self.tree.root, *self.tree.merge(grown)])
        return self._draft_seconds(grown)

    def grow(self, walked: bool) -> float:
        """Keep the tree as it is."""
        return 0.0

    def _cut(self, nodes: list[int]) -> None:
        size = self.segment
        self.waiting.extend(nodes[at : at + size] for at in range(0, len(nodes), size))

    def _draft_seconds(self, grown: BestTree) -> float:
        return sum(self.setting.draft_pass(rows) for rows in grown.expanded)


class FlowSpec(Pruned):
    """The paper's: after each walk the tree grows at its new root, and what is new leaves."""

    def __init__(
        self, setting: Setting, language: Language, segment: int, nodes: int, depth: int
    ) -> None:
        super().__init__(setting, language, segment, nodes)
        self.depth = depth

    @property
    def note(self) -> str:
        return f"{super().note}, grows by {self.depth} levels"

    def grow(self, walked: bool) -> float:
        """Append what a tree at the root has more."""
        if not walked:
            return 0.0
        root = self.tree.key[self.tree.root]
        grown = best_tree(self.language, root, GROWN_NODES, self.depth)
        left = [node for nodes in self.waiting for node in nodes]
        self.waiting.clear()
        self._cut(left + self.tree.merge(grown))
        return self._draft_seconds(grown)


class LayerAStep(LockStep):
    """PipeDec: in each turn the tree's next level leaves, of the likeliest children."""

    def __init__(self, setting: Setting, language: Language, width: int) -> None:
        super().__init__(setting, language)
        self.width = width
        self._level: list[tuple[float, int]] = []

    @property
    def note(self) -> str:
        return f"levels of {self.width}"

    def restart(self) -> float:
        """Begin with the root."""
        self._level = [(0.0, self.tree.root)]
        self.waiting.append([self.tree.root])
        return 0.0

    def grow(self, walked: bool) -> float:
        """Draft the next level."""
        level = [(score, node) for score, node in self._level if self.tree.lives(node)]
        found: list[tuple[float, int, int]] = []
        for score, node in level:
            tokens, logprobs = self.language.children(self.tree.key[node])
            both = zip(tokens.tolist(), logprobs.tolist(), strict=True)
            found += [(score + logprob, node, token) for token, logprob in both]
        best = sorted(found, key=lambda one: (-one[0], one[1]))[: self.width]
        self._level = [(score, self.tree.add(node, token)) for score, node, token in best]
        self.waiting.append([node for _, node in self._level])
        return self.setting.draft_pass(len(level)) if level else 0.0
