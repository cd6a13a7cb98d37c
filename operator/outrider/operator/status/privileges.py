"""Privileges that a stored service has and that nobody asked its author about.

A rule of the chart's admission policy may be younger than a service, or was switched on later. A
second policy of the chart warns of the same privileges as a status is written, so the API server
judges. What it warns of when the operator first sees an edit, the author was let have. Leaves the
words to `advice`.
"""

import logging
import math
import re

from outrider.operator.cluster.client import ClusterError
from outrider.operator.cluster.interfaces import ClusterWriter
from outrider.operator.observed.service import Observed
from outrider.operator.status.content import status_object

log = logging.getLogger(__name__)
WARNED = re.compile(r"Validation failed for ValidatingAdmissionPolicy 'stored\..*?' with .*?: (.*)")
"""A warning of the chart's policy on stored services."""
RULE = re.compile(r"\(rule (\w+)\)$")
"""The rule at the end of a sentence; the words before it change with the chart and its values."""
AGAIN_SECONDS = 3600.0
"""Seconds between two questions about a service that stays: rules may come meanwhile."""


class Privileges:
    """What the admission policy says of one stored service."""

    def __init__(self) -> None:
        self.admitted: tuple[str, ...] = ()
        """What its author was let have."""
        self._found: tuple[str, ...] = ()
        self._generation = 0
        self._is_edited = False
        """True if the generation came while the policy was there, and has not been asked about."""
        self._asked_at = -math.inf

    @property
    def unasked(self) -> tuple[str, ...]:
        """What it has and nobody asked its author about."""
        admitted = {_rule(one) for one in self.admitted}
        return tuple(one for one in self._found if _rule(one) not in admitted)

    async def ask(self, writer: ClusterWriter, observed: Observed, now: float) -> None:
        """Ask the API server about a generation that is new, or again after a while."""
        if observed.generation != self._generation:
            self._begin(observed)
        elif now - self._asked_at < AGAIN_SECONDS:
            return
        try:
            said = await writer.warnings(status_object(observed, observed.status))
        except ClusterError as error:
            return log.warning("%s: privileges: %s", observed.owner.name, error)
        found = (WARNED.fullmatch(one) for one in said)
        self._found = tuple(sorted({one[1] for one in found if one is not None}))
        self._asked_at = now
        if self._is_edited:
            self.admitted, self._is_edited = self._found, False

    def _begin(self, observed: Observed) -> None:
        """Turn to another generation."""
        status = observed.status
        self._is_edited = status.get("observedGeneration") != observed.generation
        self._generation, self._asked_at = observed.generation, -math.inf
        self.admitted, self._found = tuple(status.get("admitted", ())), ()


def _rule(sentence: str) -> str:
    """Return the name of a sentence's rule; a sentence without one is its own."""
    found = RULE.search(sentence)
    return found[1] if found is not None else sentence
