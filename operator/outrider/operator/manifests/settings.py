"""ConfigMaps: what a role's workers start with, and the intent that outlives every process.

A role's settings never change in place: their name ends in their digest, so that an old pod that
starts again finds what it was made for. The policy is not part of them: it changes without a
roll-out.
"""

import dataclasses
import json

from outrider.contract.ports import GRPC, HTTP
from outrider.contract.settings import PolicySettings, Role, WorkerSettings
from outrider.operator.differences import digest
from outrider.operator.kinds import CONFIG_MAP
from outrider.operator.manifests.child import Object, Owner, child
from outrider.operator.naming import intent_name, role_name

SETTINGS_KEY = "settings.json"
POLICY_KEY = "policy.json"
MEMORY_KEY = "memory.json"
CACHE = "/var/cache/outrider"
"""Where prepared models are kept in a pod."""
EVERYWHERE = "0.0.0.0"
LINK_SECONDS = 30
"""How long a new target waits for its first link before it takes an old one's place."""


def in_pod(settings: WorkerSettings) -> WorkerSettings:
    """The settings of a role as its pods take them; the policy comes by a file of its own."""
    return dataclasses.replace(
        settings,
        listen=f"{EVERYWHERE}:{GRPC}",
        http_listen=f"{EVERYWHERE}:{HTTP}",
        cache=CACHE,
        link_seconds=LINK_SECONDS if settings.role is Role.TARGET else 0,
        policy=PolicySettings(),
    )


def settings_map(owner: Owner, settings: WorkerSettings) -> Object:
    """One revision of a role's settings."""
    text = settings.to_json()
    return child(
        CONFIG_MAP,
        owner,
        settings_name(owner, settings),
        settings.role,
        data={SETTINGS_KEY: text},
        immutable=True,
    )


def settings_name(owner: Owner, settings: WorkerSettings) -> str:
    """Name of the ConfigMap with these settings."""
    return f"{role_name(owner.name, settings.role)}-{digest(json.loads(settings.to_json()))}"


def intent_map(owner: Owner, policy: PolicySettings, memory: str) -> Object:
    """What pods start from, and what the control loop remembers."""
    data = {POLICY_KEY: policy.to_json(), MEMORY_KEY: memory}
    return child(CONFIG_MAP, owner, intent_name(owner.name), data=data)


def is_settings(name: str, service: str) -> bool:
    """Whether a ConfigMap of a service holds settings of one of its roles."""
    return any(name.startswith(role_name(service, role) + "-") for role in Role)
