"""What is remembered of a service on this machine: step costs, and how its pair did before.

One JSON file for each machine, pair of models, settings and version. A file that cannot be read
only costs measuring again. Leaves measuring to `choose`.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import outrider
from outrider.cli import gpus
from outrider.cli.machine_info import machine
from outrider.contract.counters import Counters
from outrider.contract.settings import ModelSettings, WorkerSettings
from outrider.contract.whole_file import write_whole
from outrider.operator.spec import Placement

HOPED_FOR = 0.6
"""Acceptance of a pair that has never run: hopeful, so that it is tried where it may pay."""
DOUBT = 8
"""First guesses that the hope counts as."""
KEPT = 4000
"""First guesses that are remembered; what is older fades."""
TRUSTED = 1.5
"""Passes that cost more or less by this factor are those of another machine."""
LEAST, MOST = 0.02, 0.95
LOCAL = "file://"
ELSEWHERE = ("cache", "allowed_hosts", "api_keys_file", "tls_cert", "tls_key")
"""Settings that change no pass."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of one service on one machine."""

    costs: Mapping[str, Any] | None = None
    """Step costs, as a worker measured them."""
    first_guesses: float = 0.0
    first_hits: float = 0.0
    row_seconds: Mapping[str, float] = field(default_factory=dict)
    """Of a pass of one row by the target's threads, as it measured them itself in the first run."""
    over_expected: Mapping[str, float] = field(default_factory=dict)
    """What a placement gained over plain decoding when it was tried, by what was expected."""

    @property
    def acceptance(self) -> float:
        """Chance that the draft's likeliest next token is right, as far as it is known."""
        share = (self.first_hits + DOUBT * HOPED_FOR) / (self.first_guesses + DOUBT)
        return min(max(share, LEAST), MOST)

    def ran(self, counters: Counters) -> Self:
        """Return the facts after a run of the target with these counters."""
        if counters.first_guesses == 0:
            return self
        kept = min(1.0, KEPT / (self.first_guesses + counters.first_guesses))
        return replace(
            self,
            first_guesses=kept * (self.first_guesses + counters.first_guesses),
            first_hits=kept * (self.first_hits + counters.first_hits),
        )

    def with_costs(self, costs: Mapping[str, Any]) -> Self:
        """Return the facts with new step costs; what was found beside the old ones is forgotten."""
        return replace(self, costs=costs, row_seconds={}, over_expected={})

    def with_row(self, threads: int, seconds: float) -> Self:
        """Return the facts after a target has measured its passes.

        Where they cost otherwise than in the first run, the machine is another, or was busy then:
        what was measured and tried is forgotten.
        """
        known = self.row_seconds.get(str(threads), seconds)
        if not 1 / TRUSTED < seconds / known < TRUSTED:
            return replace(self, costs=None, row_seconds={}, over_expected={})
        return replace(self, row_seconds={**self.row_seconds, str(threads): known})

    def with_trial(self, placement: Placement, over_expected: float) -> Self:
        """Return the facts after a trial."""
        return replace(self, over_expected={**self.over_expected, str(placement): over_expected})

    @classmethod
    def read(cls, file: Path) -> Self:
        """Return what the file holds; nothing if there is none, or none that can be read."""
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
            facts = cls(**found)
            usable = 0 <= facts.first_hits <= facts.first_guesses and all(
                ratio >= 0 for ratio in facts.over_expected.values()
            )
            usable = usable and all(seconds > 0 for seconds in facts.row_seconds.values())
        except (OSError, ValueError, TypeError, AttributeError):
            return cls()
        return facts if usable else cls()

    def write(self, file: Path) -> None:
        """Write the file whole; raises `OSError`."""
        write_whole(file, json.dumps(asdict(self), indent=2))


def facts_file(cache: Path, target: WorkerSettings, *drafts: WorkerSettings) -> Path:
    """Return the file for a service whose target has these settings, its draft inside, and whose
    draft has those where it is a process of its own."""
    models = [target.model, *filter(None, [target.colocated])]
    identity = {
        "machine": {**machine(), "memory_gib": None},
        "gpus": gpus.present(),
        "environment": {k: v for k, v in os.environ.items() if k in (gpus.VISIBLE, "OUTRIDER_ISA")},
        "sources": sources(),
        "settings": [
            {k: v for k, v in asdict(settings).items() if k not in ELSEWHERE}
            for settings in (target, *drafts)
        ],
        "files": [list(files_of(model)) for model in models],
    }
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    return cache / "placement" / f"{digest[:16]}.json"


def sources() -> str:
    """Return SHA-256 of the source of kernels and worker: any line may change what passes cost."""
    digest = hashlib.sha256()
    for portion in sorted(outrider.__path__):
        for folder in ("kernels", "worker"):
            for file in sorted((Path(portion) / folder).rglob("*.py")):
                digest.update(file.read_bytes())
    return digest.hexdigest()


def files_of(model: ModelSettings) -> Iterator[tuple[str, int, int]]:
    """Yield name, size and time of a local model's files: it may be trained again in its place."""
    if model.uri.startswith(LOCAL):
        path = Path(model.uri.removeprefix(LOCAL))
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file():
                facts = file.stat()
                yield str(file), facts.st_size, facts.st_mtime_ns
