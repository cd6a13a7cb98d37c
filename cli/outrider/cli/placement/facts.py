"""What is remembered of a service on this machine: seconds of passes, and how its pair did.

One JSON file for each machine, pair of models, settings and version. A file that cannot be read
only costs measuring again. Leaves measuring to `measure`.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from outrider.cli.machine import gpus
from outrider.cli.machine.info import machine
from outrider.cli.placement.formula import Curve
from outrider.cli.workers.prepared_models import files_of, sources
from outrider.contract.counters import Counters
from outrider.contract.files import write_whole
from outrider.contract.settings import WorkerSettings

HOPED_FOR = 0.6
"""Acceptance of a pair that was never measured."""
DOUBT = 8
"""First guesses that the hope counts as."""
KEPT = 4000
"""First guesses that are remembered; what is older fades."""
TRUSTED = 1.5
"""Factor beyond which passes are those of another machine, or of a busy one."""
LEAST, MOST = 0.02, 0.95
ELSEWHERE = ("cache", "allowed_hosts", "api_keys_file", "tls_cert", "tls_key")
"""Settings that change no pass."""


@dataclass(frozen=True, slots=True)
class PassSeconds:
    """Seconds of passes of both models, by rows."""

    target: Curve
    draft: Curve = field(default_factory=dict)
    """Empty: the draft was not measured."""

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Self:
        """Read what `asdict` wrote; raises `KeyError`, `TypeError` or `ValueError`."""
        target, draft = (curve_of(found[name]) for name in ("target", "draft"))
        if not target:
            raise ValueError("no passes of the target")
        return cls(target, draft)


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of one service on one machine."""

    alone: Mapping[int, PassSeconds] = field(default_factory=dict)
    """Passes as `Colocated`, by the target's threads; empty: they were not measured."""
    beside: PassSeconds | None = None
    """Passes as `Separate`, at the same time; None: that is not possible."""
    first_guesses: float = 0.0
    first_hits: float = 0.0
    rates: Mapping[str, float] = field(default_factory=dict)
    """Tokens per second of whole arrangements by name, as `outrider profile` timed them."""

    @property
    def acceptance(self) -> float:
        """Chance that the draft's likeliest next token is right, as far as it is known."""
        share = (self.first_hits + DOUBT * HOPED_FOR) / (self.first_guesses + DOUBT)
        return min(max(share, LEAST), MOST)

    def guessed(self, guesses: float, hits: float) -> Self:
        """Return the facts after so many first guesses."""
        kept = min(1.0, KEPT / max(1.0, self.first_guesses + guesses))
        return replace(
            self,
            first_guesses=kept * (self.first_guesses + guesses),
            first_hits=kept * (self.first_hits + hits),
        )

    def after_run(self, counters: Counters, threads: int, row: float) -> Self:
        """Return the facts after a run in which a pass of one row took `row` seconds; 0: not known.

        Where that is not what was measured, all but the pair's acceptance is forgotten.
        """
        facts = self.guessed(counters.first_guesses, counters.first_hits)
        known = self.alone.get(threads)
        if known is None or row <= 0 or 1 / TRUSTED < row / known.target[1] < TRUSTED:
            return facts
        return replace(facts, alone={}, beside=None, rates={})

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Self:
        """Read what `asdict` wrote; raises `KeyError`, `TypeError`, `AttributeError` or
        `ValueError`."""
        alone = {int(n): PassSeconds.of(passes) for n, passes in found["alone"].items()}
        beside = found["beside"] and PassSeconds.of(found["beside"])
        return cls(**{**found, "alone": alone, "beside": beside})

    @classmethod
    def read(cls, file: Path) -> Self:
        """Return what the file holds; nothing if there is none, or none that can be read."""
        try:
            facts = cls.of(json.loads(file.read_text(encoding="utf-8")))
            usable = 0 <= facts.first_hits <= facts.first_guesses
            usable = usable and all(rate > 0 for rate in facts.rates.values())
        except (OSError, ValueError, TypeError, AttributeError, KeyError):
            return cls()
        return facts if usable else cls()

    def write(self, file: Path) -> None:
        """Write the file whole; raises `OSError`."""
        write_whole(file, json.dumps(asdict(self), indent=2))


def curve_of(found: Mapping[str, Any]) -> Curve:
    """Read seconds by rows from JSON; raises `TypeError`, `AttributeError` or `ValueError`."""
    curve = {int(rows): float(seconds) for rows, seconds in found.items()}
    if not all(seconds > 0 for seconds in curve.values()):
        raise ValueError(f"not the seconds of passes: {found!r}")
    return dict(sorted(curve.items()))


def facts_file(cache: Path, *workers: WorkerSettings) -> Path:
    """Return the file for a service that is measured with these workers, a target first."""
    models = dict.fromkeys(m for w in workers for m in (w.model, w.colocated) if m is not None)
    identity = {
        "machine": {**machine(), "memory_gib": None},
        "gpus": gpus.present(),
        "environment": {k: v for k, v in os.environ.items() if k in (gpus.VISIBLE, "OUTRIDER_ISA")},
        "sources": sources(),
        "settings": [
            {k: v for k, v in asdict(settings).items() if k not in ELSEWHERE}
            for settings in workers
        ],
        "files": [list(files_of(model)) for model in models],
    }
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    return cache / "placement" / f"{digest[:16]}.json"
