"""Results of a processor, as bits that another's are compared with.

    python -m tests.arm.bits FILE      # written there, as arrays by name

Layers of int8 and of four bits, norms, gates, and logits of a tiny model in three formats.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.cpu.numeric_kind import NumericPath
from tests.tiny_models import write_tiny
from tests.unit.kernels.cpu import integer_products
from tests.unit.worker.model.test_llama import TOKENS, block_table_of, build, run_prompt

TOLERANCE = 1e-4
"""Largest difference of logits whose activations are not rounded to bytes, relative to the
largest."""


def main(file: str) -> None:
    """Compute everything and save it."""
    integer_products.main(file)
    found = dict(np.load(file))
    with tempfile.TemporaryDirectory() as folder:
        tiny = write_tiny(Path(folder))
        for path in (NumericPath.FP32, NumericPath.INT8, NumericPath.INT4):
            model = build(tiny, path)
            found[f"logits {path}"] = run_prompt(model, TOKENS, block_table_of(model))
    np.savez(file, **found)


def differences(ours: Path, theirs: Path) -> tuple[str, bool]:
    """Return what differs between two files, in words; and whether that is what may.

    Sums of integers are exact, so layers have to be equal in all bits.
    """
    pairs = {
        name: (array, np.load(theirs)[name])
        for name, array in np.load(ours).items()
        if not name.endswith("kind")
    }
    other = {name: pair for name, pair in pairs.items() if not np.array_equal(*pair)}
    words = [f"{len(pairs) - len(other)} of {len(pairs)} arrays have the same bits"]
    words += [f"{name} {_difference(*pair)}" for name, pair in other.items()]
    exact = [name for name in pairs if not name.startswith(("logits", "norm", "gated"))]
    allowed = not other.keys() & {*exact} and _near(*pairs["logits fp32"])
    return "; ".join(words), allowed


def _difference(ours: NDArray[np.generic], theirs: NDArray[np.generic]) -> str:
    count, most = np.count_nonzero(ours != theirs), _most(ours, theirs)
    return f"differs in {count} of {ours.size}, by {most:.2g} at most"


def _near(ours: NDArray[np.generic], theirs: NDArray[np.generic]) -> bool:
    return _most(ours, theirs) <= TOLERANCE * float(np.abs(ours).max())


def _most(ours: NDArray[np.generic], theirs: NDArray[np.generic]) -> float:
    return float(np.abs(ours.astype(np.float64) - theirs.astype(np.float64)).max())


if __name__ == "__main__":
    main(sys.argv[1])
