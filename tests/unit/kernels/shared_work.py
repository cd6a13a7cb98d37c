"""A compiled function of its own, called in a process of its own: `python FILE FOLDER`.

Prints how often its process compiled it. It begins once `FOLDER/start` is there.
"""

import sys
import time
from pathlib import Path

from outrider.kernels.jit.compiled import njit


@njit()
def _double(number):
    return 2 * number


@njit()
def _product(number, other):
    return _double(number) * other


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    (folder / f"ready-{sys.argv[2]}").touch()
    while not (folder / "start").exists():
        time.sleep(0.001)
    assert _product(3, 4) == 24
    print(sum(_product.stats.cache_misses.values()), sum(_double.stats.cache_misses.values()))
