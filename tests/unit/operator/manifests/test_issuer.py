"""Certificates of an issuer of cert-manager's: what is wished for, and where pods find it."""

import datetime
from typing import Any

import pytest

from outrider.contract.settings import Role
from outrider.operator.certificates.authority import LIFE
from outrider.operator.certificates.issuer import Issuer
from outrider.operator.cluster.interfaces import Object
from outrider.operator.manifests.desired import Platform, desired
from outrider.operator.naming import IDENTITY_ANNOTATION
from outrider.operator.spec import load
from tests.unit.operator.golden import arguments

SPEC = """
apiVersion: outrider.dev/v1alpha1
kind: SpeculativeService
metadata: {name: chat}
spec:
  target: {model: {uri: "hf://o/large"}}
  draft: {model: {uri: "hf://o/small"}%s}
"""
ISSUER = Issuer("Issuer", "cert-manager.io", "mine")


def made(draft: str = "") -> dict[tuple[str, str], Object]:
    platform = Platform(image="w:1", issuer=ISSUER)
    objects = desired(*arguments(load(SPEC % draft), dict.fromkeys(Role, 1)), platform).objects
    return {(one["kind"], one["metadata"]["name"]): one for one in objects}


@pytest.mark.parametrize("role", list(Role))
def test_each_role_wishes_for_its_name_and_mounts_the_secret_that_comes(role: Role) -> None:
    objects = made()
    wish: Any = objects["Certificate", f"chat-{role}-issued"]["spec"]
    assert wish["dnsNames"] == [f"{role}.chat.default.outrider"]
    assert set(wish["usages"]) >= {"server auth", "client auth"}
    assert wish["issuerRef"] == {"name": "mine", "kind": "Issuer", "group": "cert-manager.io"}
    of_pods = objects["Deployment", f"chat-{role}"]["spec"]["template"]
    volumes = {one["name"]: one for one in of_pods["spec"]["volumes"]}
    assert volumes["certificates"]["secret"]["secretName"] == wish["secretName"]
    assert of_pods["metadata"]["annotations"][IDENTITY_ANNOTATION] == wish["dnsNames"][0]


def test_it_lives_as_long_as_one_that_the_operator_signs() -> None:
    wish: Any = made()["Certificate", "chat-target-issued"]["spec"]
    hours = [int(wish[key].removesuffix("h0m0s")) for key in ("duration", "renewBefore")]
    assert [datetime.timedelta(hours=one) for one in hours] == [LIFE, LIFE / 3]


def test_a_draft_in_its_targets_pod_wishes_for_none() -> None:
    kinds = [name for kind, name in made(", placement: SamePod") if kind == "Certificate"]
    assert kinds == ["chat-target-issued"]


def test_who_signs_themselves_wish_for_none() -> None:
    objects = desired(*arguments(load(SPEC % ""), {}), Platform(image="w:1")).objects
    assert "Certificate" not in {one["kind"] for one in objects}


@pytest.mark.parametrize("text", ["", "mine", "/mine", "Issuer/", ".group/mine"])
def test_what_names_no_issuer_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="allowed: KIND/NAME"):
        Issuer.read(text)
