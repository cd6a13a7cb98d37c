"""Secrets of a service on a real API server: kept over operators' lives, and shown nowhere."""

import base64
import json
from pathlib import Path

import pytest

from outrider.client import Client, Unavailable
from outrider.contract.process import CONTROL_PORT
from outrider.contract.settings import Role
from outrider.operator.cluster.kinds import SECRET
from tests.kube.operator_process import LEASE, OperatorProcess
from tests.kube.pod_workers import PodWorkers
from tests.kube.space import Space, service

PLANTED = {"keys": ("api-keys", "planted-api-key-4711"), "hub": ("token", "planted-hub-token-4712")}
CERTIFICATES = ("chat-target-certificate", "chat-draft-certificate", f"{LEASE}-authorities")
SHOWN = "specsvc,configmaps,deployments,replicasets,pods,services,serviceaccounts,events"


def plant(space: Space) -> None:
    """Secrets of the user's own, which the service names."""
    for name, (key, value) in PLANTED.items():
        space.apply(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": name},
                "stringData": {key: value},
            }
        )


def contents(space: Space) -> list[str]:
    """What must be nowhere: the planted values and a line of each private key, plain and as the API
    has them."""
    found = [value for _, value in PLANTED.values()]
    for name in CERTIFICATES:
        data = space.there(SECRET, name)["data"]
        keys = [base64.b64decode(data[key]).decode() for key in data if key.endswith(".key")]
        assert keys
        found += [key.splitlines()[1] for key in keys]
        found += [data[key][120:160] for key in data if key.endswith(".key")]
    return found + [base64.b64encode(value.encode()).decode() for _, value in PLANTED.values()]


def test_secrets_are_kept_over_an_operators_lives_and_shown_nowhere(
    space: Space, operator: OperatorProcess, workers: PodWorkers
) -> None:
    plant(space)
    described = service("chat")
    described["spec"]["access"] = {"apiKeysSecretRef": {"name": "keys"}}
    described["spec"]["target"]["model"]["tokenSecretRef"] = {"name": "hub"}
    space.apply(described)
    space.until_condition("chat", "LinkEstablished", "True", "Connected")
    before = {name: space.there(SECRET, name)["data"] for name in CERTIFICATES}
    operator.restart()
    operator.wait_for_passes(2)
    space.until_condition("chat", "LinkEstablished", "True", "Connected")
    assert {name: space.there(SECRET, name)["data"] for name in CERTIFICATES} == before
    (target,) = workers.wait_for(Role.TARGET, 1)
    with Client(f"{target.ip}:{CONTROL_PORT}") as stranger, pytest.raises(Unavailable):
        stranger.state(timeout=60)
    shown = {
        "the operator's log": operator.said,
        "its metrics": operator.get("/metrics"),
        "its arguments": Path(f"/proc/{operator.pid}/cmdline").read_text(),
        "objects": json.dumps(json.loads(space.kubectl("get", SHOWN, "-o", "json"))),
        "workers' logs": "".join(w.log.read_text() for role in Role for w in workers.of(role)),
    }
    for where, text in shown.items():
        assert text
        assert not [one for one in contents(space) if one in text], where
