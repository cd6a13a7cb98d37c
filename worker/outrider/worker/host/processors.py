"""The machine that a worker runs on: how many processors, and keeping to some of them."""

import logging
import os
from collections.abc import Sequence

logger = logging.getLogger(__name__)


def cores() -> int:
    """Processors that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def keep_to(processors: Sequence[int]) -> None:
    """Keeps the calling thread, and those that it starts, to `processors`; empty: to any."""
    if not processors:
        return
    setter = getattr(os, "sched_setaffinity", None)  # Linux only
    if setter is None:
        logger.info("this system cannot keep a thread to processors %s", processors)
        return
    try:
        setter(0, processors)
    except (OSError, ValueError) as error:
        logger.warning("cannot keep to processors %s: %s", processors, error)
