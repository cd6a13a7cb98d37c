"""ConfigMaps: settings of a role's workers, and the stored policy and memory of the control loop.

A role's settings never change in place: their name ends in their digest, so that an old pod that
restarts finds its own. The policy is not part of them: it changes without a rollout.
"""

import dataclasses
import json

from outrider.contract.process import (
    CONTROL_PORT,
    DRAFT_GRPC_PORT,
    DRAFT_HTTP_PORT,
    GRPC_PORT,
    HTTP_PORT,
)
from outrider.contract.settings import PolicySettings, Role, WorkerSettings
from outrider.operator.cluster.differences import digest
from outrider.operator.cluster.kinds import CONFIG_MAP
from outrider.operator.manifests.child import Object, child
from outrider.operator.manifests.termination import LAME_DUCK_SECONDS, target_seconds
from outrider.operator.naming import (
    MEMORY_KEY,
    POLICY_KEY,
    SETTINGS_KEY,
    intent_name,
    role_name,
)
from outrider.operator.observed.owner import Owner

CACHE = "/var/cache/outrider"
"""Where prepared models are kept in a pod."""
EVERYWHERE = "0.0.0.0"
SAME_POD_DRAFT = f"127.0.0.1:{DRAFT_GRPC_PORT}"
"""Address of the draft in a target's pod, as that target uses it."""
LINK_FOLDER = "/run/outrider/link"
"""Where a target and the draft in its pod meet."""
LINK_SECONDS = 30
"""Seconds that a new target waits for its first link before it replaces an old one."""


def in_pod(settings: WorkerSettings) -> WorkerSettings:
    """Return a role's settings as its pods take them; the policy has a file of its own."""
    common = dataclasses.replace(
        settings,
        listen=f"{EVERYWHERE}:{GRPC_PORT}",
        control_listen=f"{EVERYWHERE}:{CONTROL_PORT}",
        http_listen=f"{EVERYWHERE}:{HTTP_PORT}",
        guarded=True,
        cache=CACHE,
        policy=PolicySettings(),
    )
    if settings.role is Role.DRAFT:
        return common
    return dataclasses.replace(
        common,
        link_seconds=LINK_SECONDS,
        lame_duck_seconds=LAME_DUCK_SECONDS,
        grace_seconds=target_seconds(settings.request_seconds),
    )


def in_same_pod(settings: WorkerSettings) -> WorkerSettings:
    """Return the settings of a target, or of the draft in its pod; links to such a draft come over
    the pod's loopback alone, beside the memory that both share."""
    own = dataclasses.replace(in_pod(settings), link_dir=LINK_FOLDER)
    if settings.role is Role.TARGET:
        return own
    http = f"{EVERYWHERE}:{DRAFT_HTTP_PORT}"
    return dataclasses.replace(
        own, listen=SAME_POD_DRAFT, control_listen="", http_listen=http, peers=None
    )


def settings_map(owner: Owner, settings: WorkerSettings, pods: Role) -> Object:
    """Return the ConfigMap of one revision of a role's settings; `pods`: the role whose pods start
    from it."""
    text = settings.to_json()
    name = f"{role_name(owner.name, settings.role)}-{digest(json.loads(text))}"
    return child(CONFIG_MAP, owner, name, pods, data={SETTINGS_KEY: text}, immutable=True)


def intent_map(owner: Owner, policy: PolicySettings, memory: str) -> Object:
    """Return the ConfigMap with the policy that pods start from and the control loop's memory."""
    data = {POLICY_KEY: policy.to_json(), MEMORY_KEY: memory}
    return child(CONFIG_MAP, owner, intent_name(owner.name), data=data)


def is_settings(name: str, service: str) -> bool:
    """True if a ConfigMap of a service holds settings of one of its roles."""
    return any(name.startswith(role_name(service, role) + "-") for role in Role)
