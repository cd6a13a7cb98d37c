"""Defaults that a small cluster adds to objects, and its form of quantities. Changes in place."""

import re
from typing import Any

UNITS = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}


def completed(body: dict[str, Any]) -> dict[str, Any]:
    """The object with defaults, as a server keeps it."""
    spec = body.get("spec", {})
    if body["kind"] in ("Deployment", "LeaderWorkerSet"):
        spec.setdefault("replicas", 1)
    if "template" in spec:
        _pod(spec["template"]["spec"])
    if body["kind"] == "Service":
        spec.setdefault("clusterIP", "10.0.0.1")
        spec.setdefault("sessionAffinity", "None")
    if body["kind"] == "PersistentVolumeClaim":
        spec.setdefault("volumeMode", "Filesystem")
        _amounts(spec["resources"]["requests"])
    return body


def _pod(spec: dict[str, Any]) -> None:
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("dnsPolicy", "ClusterFirst")
    for container in (*spec["containers"], *spec["initContainers"]):
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        for amounts in container.get("resources", {}).values():
            _amounts(amounts)


def _amounts(amounts: dict[str, Any]) -> None:
    for key, amount in amounts.items():
        amounts[key] = quantity(amount)


def quantity(amount: Any) -> str:
    """As a server writes it: 0.5 as 500m, 2048Mi as 2Gi, 3 as "3"."""
    text = str(amount)
    if match := re.fullmatch(r"(\d+)(Ki|Mi|Gi)", text):
        total = int(match[1]) * UNITS[match[2]]
        unit = next(u for u in ("Gi", "Mi", "Ki") if total % UNITS[u] == 0)
        return f"{total // UNITS[unit]}{unit}"
    if re.fullmatch(r"\d*\.\d+", text):
        milli = round(float(text) * 1000)
        return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"
    return text
