"""Speculative decoding of one sequence as Outrider does it: the algorithm, without an engine.

Draft and target take turns here; in the product they run side by side and messages cross, without a
change in the text. docs/concepts/speculation.md leads here, and
`tests/unit/worker/test_every_path.py` compares every path of the target with it.
"""

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
"""[vocabulary]"""
Target = Callable[[list[int]], Floats]
"""Logits of the token after a context, penalised, divided by the temperature and filtered."""
Draft = Callable[[list[int], Floats], Floats]
"""Log-probabilities of the token after a context, for the noise by which the target samples it."""
Noise = Callable[[int], Floats]
"""What is added to the logits of the token at a position: Gumbel noise that seed and position
determine, or zeros, for the likeliest token."""
Path = tuple[int, ...]
"""A node, as the tokens from below the root to its own; the root is ()."""


class Pass(NamedTuple):
    """One verify pass."""

    tokens: Path
    """Committed tokens, of which all but the last were draft tokens with a row."""
    tree: set[Path]
    """Nodes that live on below the last of them, the new root."""


def speculate(
    target: Target,
    draft: Draft,
    noise: Noise,
    prompt: list[int],
    ends: Collection[int],
    most: int,
    nodes: int = 12,
    rows: int = 6,
    branch: int = 3,
) -> Iterator[Pass]:
    """Yield the passes that write at most `most` tokens after a prompt, up to one of `ends`.

    The draft keeps `nodes` nodes ahead and gives each at most `branch` children; a pass of the
    target has the root's row and those of `rows` nodes.
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
            logprobs = draft(context, noise(len(context)))
            for token in np.argsort(-logprobs)[:branch].tolist():
                if logprobs[token] > -np.inf:
                    tree[(*leaf, token)] = tree[leaf] + logprobs[token]
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

        # Re-root: what lies below the last committed token lives on; all else dies.
        text += tokens
        depth, base = len(tokens), tree.get(tokens, 0.0)
        tree = {p[depth:]: tree[p] - base for p in tree if p[:depth] == tokens} or {(): 0.0}
        expanded = {path[depth:] for path in expanded if path[:depth] == tokens}
        yield Pass(tokens, tree.keys() - {()})
