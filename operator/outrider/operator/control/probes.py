"""Probes: when drafting that is off is worth another try. Pure arithmetic.

A probe is priced by the hardware that waits while drafts start, and by what it is expected to lose.
The time until the next is so long that probes cost no more than `GUARD` of the service, and
doubles with each that fails, without limit. Failures count by class of load, for gain depends on
load more than on anything: what failed at noon says little of the night. Nightjar (arXiv
2512.22420) charges a switch in the same way, from a table, and keeps an estimate by batch size.
"""

import dataclasses
from dataclasses import dataclass

from outrider.operator.control.break_even import BreakEven
from outrider.operator.control.settings import ControlSettings

GUARD = 0.03
"""Share of a service that probes may cost: the bound that Nightjar's ports gave exploration."""
UNKNOWN_START_SECONDS = 120.0
"""Time for drafts to start and link, until it was measured once."""
MAX_DOUBLINGS = 30
"""Probes that fail and still double the time to the next: by then that is ten thousand years."""

MAX_LOAD = 15
"""Highest class of load: 32,768 requests a target and more."""


@dataclass(frozen=True, slots=True)
class ProbeRecord:
    """What was seen of drafting in one class of load."""

    failed: int = 0
    """Probes in a row that failed, and returns of drafting that did not last."""
    gain_percent: int = 0
    """Gain when drafting last went off; 0: not known."""


Records = tuple[ProbeRecord, ...]
"""Records by class of load: 0 to 1 request a target, 2 to 3, 4 to 7, and so on."""


def load_class(running_per_target: float) -> int:
    """Return the class of a load."""
    return min(MAX_LOAD, max(0, int(running_per_target).bit_length() - 1))


def record_of(records: Records, load: int) -> ProbeRecord:
    """Return the record of a class of load."""
    return records[load] if load < len(records) else ProbeRecord()


def with_record(records: Records, load: int, record: ProbeRecord) -> Records:
    """Return the records with another one for a class of load."""
    padded = (*records, *(ProbeRecord() for _ in range(load + 1 - len(records))))
    return (*padded[:load], record, *padded[load + 1 :])


def failed_again(record: ProbeRecord, gain_percent: float | None, lasted: bool) -> ProbeRecord:
    """Return the record after drafting went off for its gain. `lasted`: it had been on for long, so
    that what failed before counts no more."""
    shown = 0 if gain_percent is None else round(gain_percent)
    return dataclasses.replace(
        record, failed=0 if lasted else record.failed + 1, gain_percent=shown
    )


def lasting_seconds(settings: ControlSettings) -> float:
    """Return the time on after which drafting was worth coming back: twice a probe's interval, so
    that gain that comes and goes faster than that makes its probes rarer."""
    return 2.0 * settings.probe_interval_seconds


def wait_seconds(
    settings: ControlSettings, pays: BreakEven, record: ProbeRecord, start_seconds: float
) -> float:
    """Return the time off before a probe; `start_seconds`: of drafts, 0 where they run."""
    expected = record.gain_percent or pays.off_below
    price = (
        pays.share * start_seconds
        + settings.cooldown_seconds * max(0, pays.off_below - expected) / 100
    )
    first = max(float(settings.probe_interval_seconds), price / GUARD)
    return first * float(2 ** min(record.failed, MAX_DOUBLINGS))
