"""What programs with a service account asked of an API server, from its own audit log.

    with ControlPlane.started(folder, api_options=audit.options(folder)) as control_plane: ...
    asked = audit.asked(folder, "system:serviceaccount:apps:operator")

Leaves it to the test what they may ask.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
        {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
        {"level": "None"},
    ],
}
CREATED, UNAUTHORIZED, FORBIDDEN = 201, 401, 403


@dataclass(frozen=True, slots=True)
class Asked:
    """One request that was answered."""

    verb: str
    group: str
    resource: str
    """With its subresource; empty where something else than an object was asked for."""
    code: int
    uri: str

    @property
    def refused(self) -> bool:
        """Whether it was not allowed."""
        return self.code in (UNAUTHORIZED, FORBIDDEN)

    @property
    def used(self) -> set[tuple[str, str, str]]:
        """Permissions (group, resource, verb) that it took; an apply of something new takes two."""
        if not self.resource:
            return set()
        created = self.verb == "patch" and self.code == CREATED
        verbs = ("patch", "create") if created else (self.verb,)
        return {(self.group, self.resource, verb) for verb in verbs}


def options(folder: Path) -> tuple[str, ...]:
    """Options of an API server that logs into `folder`."""
    policy = folder / "audit-policy.json"
    policy.write_text(json.dumps(POLICY))
    return (f"--audit-policy-file={policy}", f"--audit-log-path={_log(folder)}")


def asked(folder: Path, user: str) -> list[Asked]:
    """All that a user has asked until now."""
    return [_asked(event) for event in _events(folder) if event["user"]["username"] == user]


def _events(folder: Path) -> Iterator[dict[str, Any]]:
    for line in _log(folder).read_text().splitlines():
        yield json.loads(line)


def _asked(event: dict[str, Any]) -> Asked:
    about = event.get("objectRef", {})
    parts = (about.get("resource", ""), about.get("subresource", ""))
    return Asked(
        verb=event["verb"],
        group=about.get("apiGroup", ""),
        resource="/".join(part for part in parts if part),
        code=event.get("responseStatus", {}).get("code", 0),
        uri=event["requestURI"],
    )


def _log(folder: Path) -> Path:
    return folder / "audit.log"
