"""Token masks on the device: columns of a draft's logits that its targets know.

Every link has a mask, and targets of one tokenizer have equal ones. Leaves applying them to
`outrider.kernels.gpu.child_inputs`.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outrider.worker.gpu.transfers import Transfers

NO_MASK = -1
FEW = 4

Mask = NDArray[np.bool_]


class TokenMasks:
    """Different masks, a line each."""

    def __init__(self, token_ids: NDArray[np.int32], copies: Transfers) -> None:
        """token_ids: [columns] the target's id of each column."""
        self._ids, self.copies = token_ids, copies
        self._lines: list[Mask] = []
        self._seen: dict[int, tuple[Mask, int]] = {}
        self.allowed: Tensor = torch.ones(
            (FEW, len(token_ids)), dtype=torch.bool, device=copies.device
        )
        """bool [masks, columns]; another tensor once there are more masks."""

    def line(self, allowed: Mask) -> int:
        """Return the line of `allowed`, bool [the target's vocabulary], never to be written to;
        `NO_MASK` if it leaves no column out."""
        known = self._seen.get(id(allowed))
        if known is None:
            if len(self._seen) == 64 * FEW:
                self._seen.clear()  # links long gone
            known = self._seen[id(allowed)] = allowed, self._find(allowed)  # kept: so is its id
        return known[1]

    def _find(self, allowed: Mask) -> int:
        columns = np.zeros(len(self._ids), np.bool_)
        within = self._ids < len(allowed)
        columns[within] = allowed[self._ids[within]]
        if columns.all():
            return NO_MASK
        for line, mask in enumerate(self._lines):
            if np.array_equal(mask, columns):
                return line
        with self.copies.computing():
            if len(self._lines) == len(self.allowed):
                self.allowed = torch.cat([self.allowed, torch.ones_like(self.allowed)])
            self.allowed[len(self._lines)] = torch.from_numpy(columns).to(self.allowed.device)
        self._lines.append(columns)
        return len(self._lines) - 1
