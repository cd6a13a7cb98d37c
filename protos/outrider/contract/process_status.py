"""What Linux shows of another process: its state, and the processor time that it has had.

Nothing is known elsewhere, or of a process that is gone.
"""

import os
from pathlib import Path

STOPPED = "T"
"""State of a process that a signal has stopped; one that a debugger holds has another."""


def is_stopped(process: int) -> bool:
    """True if a signal has stopped a process: by itself it never goes on."""
    fields = _stat(process)
    return bool(fields) and fields[0] == STOPPED


def facts_of(process: int) -> str:
    """Return how a process is, for people."""
    fields = _stat(process)
    if not fields:
        return f"of process {process} nothing is known"
    seconds = _seconds(fields)
    return f"process {process} is in state {fields[0]}, and has had {seconds:.1f} s of a processor"


def _seconds(fields: list[str]) -> float:
    """Seconds that a process and its threads have computed."""
    user, system = int(fields[11]), int(fields[12])
    return (user + system) / os.sysconf("SC_CLK_TCK")


def _stat(process: int) -> list[str]:
    """Return /proc's fields from the state on; none where there is no such file."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
