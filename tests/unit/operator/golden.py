"""The objects of two examples, as the operator makes them: `python -m tests.unit.operator.golden`.

Written so that people can read what a service becomes; a test compares.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from outrider.contract.settings import Role
from outrider.operator.cluster.kinds import LEADER_WORKER_SET, POD_MONITOR
from outrider.operator.control.memory import LoopMemory, Phase
from outrider.operator.manifests.desired import (
    Desired,
    Intent,
    Platform,
    desired,
    role_spec,
    roles,
)
from outrider.operator.observed.owner import Owner
from outrider.operator.plan import policy
from outrider.operator.spec import SpeculativeService, load

FOLDER = Path(__file__).parent / "golden"
EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))
WRITTEN = [path for path in EXAMPLES if path.stem in ("llama-70b", "smollm2")]
NOTE = "run `python -m tests.unit.operator.golden`"
AROUND = Platform(
    image="outrider-worker:1",
    kinds=frozenset([POD_MONITOR, LEADER_WORKER_SET]),
    namespace="outrider-system",
)
MEMORY = LoopMemory(
    version=1,
    speculate=False,
    max_rows=16,
    phase=Phase.WAKING,
    entered_at=0,
    switched_at=0,
    counted_until=0,
)


def owner_of(name: str) -> Owner:
    """Return the owner of the objects."""
    return Owner("default", name, "00000000-0000-0000-0000-000000000000")


def arguments(service: SpeculativeService, numbers: Mapping[Role, int | None]) -> tuple[Any, ...]:
    """Of `desired`, but the surroundings."""
    first = {role: role_spec(service, role).first_replicas for role in roles(service)}
    intent = Intent(policy=policy(service), memory=MEMORY.dumps())
    return owner_of(service.metadata.name), service, {**first, **numbers}, intent


def wanted(service: SpeculativeService, numbers: Mapping[Role, int | None]) -> Desired:
    """Return the objects of a service; `numbers` of replicas that are not the first ones."""
    return desired(*arguments(service, numbers), AROUND)


def rendered(path: Path) -> str:
    """All objects of an example."""
    objects = wanted(load(path.read_text(encoding="utf-8")), {}).objects
    text: str = yaml.dump_all(objects, Dumper=_Plain, sort_keys=False, width=100)
    return f"# {NOTE}\n{text}"


class _Plain(yaml.SafeDumper):
    """Writes enums as their text, text of several lines as a block, and everything in full."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style=style)


_Plain.add_representer(str, _text)
_Plain.add_multi_representer(str, _text)


def main() -> int:
    """Write the golden files."""
    FOLDER.mkdir(exist_ok=True)
    for path in WRITTEN:
        (FOLDER / path.name).write_text(rendered(path), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
