"""Growth of a draft tree, as a draft sends it and a mirror takes it.

Imports nothing that computes: server processes, which only pass it on, load no numba.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]
Ids = NDArray[np.int64]
Floats = NDArray[np.float32]


class Growth(NamedTuple):
    """Nodes that one draft pass adds; a draft sends them, as they are, in a `Grow`."""

    root_position: int
    """Position of the draft's root, to which parent 0 refers."""
    first_id: int
    """Id of the first node; those of the others follow it."""
    parents: Ids
    """Ids of the nodes' parents, int64[nodes]; 0 for the draft's root."""
    tokens: Ints
    """Tokens of the nodes, int32[nodes]."""
    logprobs: Floats
    """Natural log-probability of each token after its parent, float32[nodes]."""
