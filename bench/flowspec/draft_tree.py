"""Trees that are drafted at once, level by level, as EAGLE-2 and FlowSpec do."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.flowspec.language import CHILDREN, Language, step
from outrider.worker.tree.walk import ROOT

WIDTH = 10
"""Leaves expanded in one level."""


class BestTree(NamedTuple):
    """The likeliest nodes below a root, by falling score, a parent before its children."""

    parents: NDArray[np.int32]
    tokens: NDArray[np.int32]
    logprobs: NDArray[np.float32]
    keys: list[int]
    """Key of each node's path."""
    expanded: list[int]
    """Rows of each level's draft pass."""


def best_tree(language: Language, root: int, nodes: int, depth: int) -> BestTree:
    """Grow `depth` levels below the path `root`, of the `WIDTH` best leaves each; keep the best."""
    grown: list[tuple[float, int, int, int, float]] = []  # score, parent, key, token, logprob
    level: list[tuple[float, int, int]] = [(0.0, ROOT, root)]  # score, number, key
    expanded = []
    for _ in range(depth):
        expanded.append(len(level))
        first = len(grown)
        for score, number, key in level:
            tokens, logprobs = language.children(key, CHILDREN)
            for token, logprob in zip(tokens.tolist(), logprobs.tolist(), strict=True):
                grown.append((score + logprob, number, step(key, token), token, logprob))
        new = sorted(range(first, len(grown)), key=lambda i: (-grown[i][0], i))[:WIDTH]
        level = [(grown[i][0], i, grown[i][2]) for i in new]
    kept = sorted(range(len(grown)), key=lambda i: (-grown[i][0], i))[:nodes]
    places = {number: place for place, number in enumerate(kept)} | {ROOT: ROOT}
    chosen = [grown[i] for i in kept]
    return BestTree(
        np.array([places[one[1]] for one in chosen], np.int32),
        np.array([one[3] for one in chosen], np.int32),
        np.array([one[4] for one in chosen], np.float32),
        [one[2] for one in chosen],
        expanded,
    )
