"""The operator's own certificate, by which workers know who calls their `Control`.

Kept in memory alone: another process of the operator gets another one.
"""

import datetime
import time
from collections.abc import Callable
from dataclasses import dataclass

from outrider.client.channel import ClientCertificate
from outrider.operator.certificates.authority import Authorities, KeyPair
from outrider.operator.naming import OPERATOR_IDENTITY


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a call to a worker is made with."""

    own: ClientCertificate
    trusted: bytes
    """Certificates of the authorities, in PEM."""


class Caller:
    """Issues the operator's certificate, anew before it ends or its authority is no more."""

    def __init__(
        self, authorities: Callable[[], Authorities], clock: Callable[[], float] = time.time
    ) -> None:
        """`clock` gives seconds since the epoch."""
        self._authorities = authorities
        self._clock = clock
        self._pair: KeyPair | None = None

    def credentials(self) -> Credentials:
        """Return what counts now."""
        authorities = self._authorities()
        now = datetime.datetime.fromtimestamp(self._clock(), datetime.UTC)
        if self._pair is None or not authorities.vouch(self._pair, OPERATOR_IDENTITY, now):
            self._pair = authorities.issue(OPERATOR_IDENTITY, now)
        own = ClientCertificate(self._pair.certificate, self._pair.key)
        return Credentials(own, authorities.bundle)
