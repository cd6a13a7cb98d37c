"""Speculative decoding of one sequence as Outrider does it: the algorithm, without an engine.

Draft and target take turns here; in the product they run side by side and messages cross, without a
change in the text. docs/concepts/speculation.md shows `speculate`, and
`tests/unit/worker/test_every_path.py` compares every path of the target with it.
"""

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Scores = Callable[[list[int]], NDArray[np.float64]]
"""Logits of the token after a context, penalised, divided by the temperature and filtered."""
Path = tuple[int, ...]
"""A node, as the tokens from below the root to its own; the root is ()."""


class Pass(NamedTuple):
    """One verify pass."""

    tokens: Path
    """Committed tokens, of which all but the last were draft tokens with a row."""
    fall_in: bool
    """True if the last token was in the tree too, so that what is below it lives on."""


def speculate(
    target: Scores,
    draft: Scores,
    noise: Callable[[int], NDArray[np.float64]],
    prompt: list[int],
    ends: Collection[int],
    most: int,
    nodes: int = 12,
    rows: int = 6,
    branch: int = 3,
) -> Iterator[Pass]:
    """Yield the passes that write at most `most` tokens after a prompt, up to one of `ends`.

    `noise`: what is added to the scores of the token at a position: Gumbel noise of seed and
    position, or zeros, for the likeliest token. The draft keeps `nodes` nodes ahead and expands a
    node by `branch` children; a pass of the target has the root's row and those of `rows` nodes.
    """
    text = list(prompt)  # its last token is the root
    tree: dict[Path, float] = {(): 0.0}  # log-probability of each path
    expanded: set[Path] = set()
    goes_on = True
    while goes_on:
        # Draft: give the likeliest leaf its likeliest children, until there are enough nodes.
        while len(tree) <= nodes and (leaves := tree.keys() - expanded):
            leaf = max(leaves, key=lambda path: (tree[path], path))
            context = text + list(leaf)
            scores = draft(context) + noise(len(context))  # the noise that the target will add
            total = np.logaddexp.reduce(scores)
            for token in np.argsort(-scores)[:branch].tolist():
                if scores[token] > -np.inf:
                    tree[(*leaf, token)] = tree[leaf] + scores[token] - total
            expanded.add(leaf)

        # Verify: sample after the root and after each of the likeliest nodes, parents first.
        sampled: dict[Path, int] = {}
        for path in sorted(tree, key=lambda path: (-tree[path], len(path)))[: 1 + rows]:
            context = text + list(path)
            sampled[path] = int(np.argmax(target(context) + noise(len(context))))

        # Commit: walk from the root as long as the token sampled at a row is a row itself.
        tokens: Path = ()
        while goes_on and tokens in sampled:
            tokens = (*tokens, sampled[tokens])
            goes_on = tokens[-1] not in ends and len(text) + len(tokens) < len(prompt) + most
        yield Pass(tokens, tokens in tree)

        # Re-root: what lies below the last committed token lives on; all else dies.
        depth = len(tokens)
        text += tokens
        base = tree.get(tokens, 0.0)
        tree = {p[depth:]: tree[p] - base for p in tree if p[:depth] == tokens} or {(): 0.0}
        expanded = {path[depth:] for path in expanded if path[:depth] == tokens}
