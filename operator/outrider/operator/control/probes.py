"""Probes: when drafting that is off is worth another try. Pure arithmetic.

A probe costs the seconds that its drafts run: they start, and are judged by `WINDOWS` windows. Each
that shows too little makes the time to the next longer, until probes are no more than `GUARD` of
it. Nightjar (arXiv 2512.22420) charges a switch in the same way, from a table.
"""

from outrider.operator.control.settings import ControlSettings

GROWTH = 1.6
"""Factor of the time to the next probe. No whole number, so that probes do not keep step with gain
that comes and goes."""
GUARD = 0.0115
"""Share of the time that probes take at most: with the first ones, drafts that do not pay and start
within a minute run for 2 % of a day, and gain that comes for good is found within 4.4 hours."""


def wait_seconds(settings: ControlSettings, failed: int, start_seconds: float) -> float:
    """Return the time off before a probe, after so many that failed; `start_seconds`: of drafts."""
    first = float(settings.probe_interval_seconds)
    most = (start_seconds + settings.judged_seconds) / GUARD
    wait = first
    for _ in range(failed):
        if wait >= most:
            break
        wait *= GROWTH
    return max(first, min(wait, most))
