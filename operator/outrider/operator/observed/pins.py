"""Pinned pod templates: a service keeps its pods until it changes, whatever the operator is. Pure.

A template follows from the service and from the operator: its version, its flags, its defaults. An
edit of the service is carried out at once, with today's operator's template; so is another value of
its annotation `RESTARTED_ANNOTATION`, which the template carries. A template that differs for any
other reason is kept as the cluster has it. What tells an edit is the status that the last pass
wrote.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from outrider.contract.settings import Role
from outrider.operator.naming import RESTARTED_ANNOTATION, REVISION_LABEL, SETTINGS_ANNOTATION
from outrider.operator.spec.conditions import ConditionType

Seen = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Pin:
    """What the last whole pass said of a role's pod template."""

    revision: str = ""
    """Revision that it wanted; empty: no pass said any."""
    next: str = ""
    """Revision that it would have written of its own accord; empty: none."""
    is_of_generation: bool = False
    """True if that was said of the service's present generation."""

    @classmethod
    def of(cls, service: Seen, role: Role) -> "Pin":
        """Return what a service's status says of a role."""
        status = service.get("status") or {}
        said = status.get(role.value) or {}
        conditions = {one["type"]: one for one in status.get("conditions", ())}
        # Only whole passes write this one; passes that fail, or cannot read, write others.
        whole = conditions.get(ConditionType.TARGET_AVAILABLE.value, {})
        generation = service["metadata"].get("generation")
        return cls(
            revision=said.get("revision", ""),
            next=said.get("nextRevision", ""),
            is_of_generation=whole.get("observedGeneration") == generation,
        )

    def holds(self, revision: str) -> bool:
        """True if a built template differs from the wanted one for the operator's sake alone."""
        if not self.revision or revision == self.revision:
            return False
        return self.is_of_generation or revision == self.next


UNSEEN = Pin()
"""Pin of a role that no pass has said anything of."""


def template_of(workload: Seen) -> Seen:
    """Return the template of a workload's newest pods; empty: it is no workload."""
    spec = workload.get("spec") or {}
    groups = spec.get("leaderWorkerTemplate", {})
    found: Seen = groups.get("workerTemplate") or spec.get("template") or {}
    return found


def revision_of(template: Seen) -> str:
    """Return the revision that a template's pods carry; empty: they carry none."""
    labels = template.get("metadata", {}).get("labels", {})
    return str(labels.get(REVISION_LABEL, ""))


def restarted_at(template: Seen) -> str:
    """Return the value of the service's annotation that a template was made for; empty: none."""
    return str(template.get("metadata", {}).get("annotations", {}).get(RESTARTED_ANNOTATION, ""))


def settings_of(template: Seen) -> tuple[str, ...]:
    """Return the names of the ConfigMaps with the settings that a template's pods start from."""
    notes = template.get("metadata", {}).get("annotations", {})
    return tuple(filter(None, notes.get(SETTINGS_ANNOTATION, "").split(",")))


def as_written(live: Seen) -> dict[str, Any]:
    """Return a live template as an operator writes it."""
    metadata = {key: value for key, value in live["metadata"].items() if value is not None}
    return {**live, "metadata": metadata}
