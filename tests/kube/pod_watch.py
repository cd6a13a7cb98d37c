"""Pods with a label, as they come, change and go: list, then watch, again and again.

Leaves what a change means to whoever asked; calls it on the thread that `follow` runs on.
"""

import http.client
import json
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.client import HTTPResponse
from typing import Any, Protocol

Pod = dict[str, Any]
WATCH_SECONDS = 1
"""Seconds of one watch: how often `on_turn` is called, and how long an end may take."""
PAUSE_SECONDS = 0.2
LOST = (OSError, http.client.HTTPException, json.JSONDecodeError)
"""What reading from an API server raises that ends meanwhile."""


class Opens(Protocol):
    """A control plane, or what another process knows of one."""

    def open(self, path: str, timeout: float) -> HTTPResponse:
        """Answer of the API server; raises what `urllib.request` does."""


@dataclass(slots=True)
class PodWatch:
    """Pods of one namespace, or of all."""

    control_plane: Opens
    label: str
    namespace: str | None
    on_pod: Callable[[Pod], None]
    """A pod that is there."""
    on_gone: Callable[[str], None]
    """The uid of a pod that is there no more."""
    on_turn: Callable[[], None]
    """At least every `WATCH_SECONDS`."""
    closing: threading.Event = field(default_factory=threading.Event)
    _known: set[str] = field(default_factory=set)

    def follow(self) -> None:
        """Until `closing`; an API server that is away is waited for."""
        version = ""
        while not self.closing.is_set():
            try:
                version = self._watch(version) if version else self._list()
                self.on_turn()
            except LOST:
                version = ""
                self.closing.wait(PAUSE_SECONDS)

    def _list(self) -> str:
        with self._open() as answer:
            listing = json.load(answer)
        alive = {pod["metadata"]["uid"] for pod in listing["items"]}
        for uid in self._known - alive:
            self._gone(uid)
        for pod in listing["items"]:
            self._there(pod)
        return str(listing["metadata"]["resourceVersion"])

    def _watch(self, version: str) -> str:
        """The version to go on from; empty where the server has forgotten the last."""
        for event in self._events(version):
            if event["type"] == "ERROR":
                return ""
            version = event["object"]["metadata"]["resourceVersion"]
            if event["type"] == "DELETED":
                self._gone(event["object"]["metadata"]["uid"])
            elif event["type"] != "BOOKMARK":
                self._there(event["object"])
        return version

    def _events(self, version: str) -> Iterator[dict[str, Any]]:
        options = {"watch": "1", "resourceVersion": version, "allowWatchBookmarks": "true"}
        with self._open(timeoutSeconds=str(WATCH_SECONDS), **options) as answer:
            for line in answer:
                yield json.loads(line)

    def _open(self, **options: str) -> Any:
        where = f"namespaces/{self.namespace}/pods" if self.namespace else "pods"
        query = urllib.parse.urlencode({"labelSelector": self.label, **options})
        return self.control_plane.open(f"/api/v1/{where}?{query}", timeout=30)

    def _there(self, pod: Pod) -> None:
        self._known.add(pod["metadata"]["uid"])
        self.on_pod(pod)

    def _gone(self, uid: str) -> None:
        self._known.discard(uid)
        self.on_gone(uid)
