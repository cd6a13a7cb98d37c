"""One service's description, read once for as long as it says the same.

Reading checks every field and rule, which takes a tenth of a pass; most passes find what the last
one found. Leaves what is allowed to `spec`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from outrider.operator.spec import SpeculativeService
from outrider.operator.spec.reading import described, validated


@dataclass(slots=True)
class Reading:
    """What was read last."""

    _document: Mapping[str, Any] = field(default_factory=dict)
    _service: SpeculativeService | None = None

    def read(self, body: Mapping[str, Any]) -> SpeculativeService:
        """As `spec.read_object`. Goes by what is there, not by its version: new defaults of the
        definition change an object that nobody has written."""
        document = described(body)
        if self._service is None or document != self._document:
            self._service = validated(SpeculativeService, document)
            self._document = document
        return self._service
