"""The hand that writes to a cluster: server-side apply, deletion, status and events.

The only module that speaks to the API server, beside kopf's watches. Decides nothing.
"""

import asyncio
import datetime
import json
from collections.abc import Callable, Mapping
from typing import Any, Self

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, ApiException, Configuration
from kubernetes.aio.dynamic import DynamicClient
from prometheus_client import Counter

from outrider.operator.kinds import ACCESS_REVIEW, BY_NAME, EVENT, LEASE, ObjectKind
from outrider.operator.naming import FIELD_MANAGER, MANAGER

Object = dict[str, Any]
SECONDS = 20.0
"""Longest wait for one answer of the API server."""
MAX_AT_ONCE = 16
"""Requests of passes that wait for their answers at once, over all services: an API server shares
its places among its clients, and more of ours would only wait there."""
ASIDE = frozenset((LEASE, ACCESS_REVIEW))
"""Kinds that need no lease and wait for no place: leadership must be renewed in time."""
NOT_FOUND, CONFLICT, TOO_MANY, FAILED = 404, 409, 429, 500
MAX_NOTE = 1024
"""Characters of an event's note, the API's limit."""


class ClusterError(Exception):
    """The API server refused, or did not answer; the message says what was asked of it."""

    def __init__(self, what: str, status: int, reason: str) -> None:
        """`status` 0: no answer."""
        super().__init__(f"{what}: {reason}")
        self.status = status
        self.reason = reason

    @property
    def gone(self) -> bool:
        """Whether the object does not exist."""
        return self.status == NOT_FOUND

    @property
    def passing(self) -> bool:
        """Whether the same may be answered soon: what failed was the server, not the object.

        A conflict of an apply, which always takes its fields, is one of writers at once: objects
        that are made together count against one ResourceQuota (kubernetes#67761).
        """
        return self.status in (0, CONFLICT, TOO_MANY) or self.status >= FAILED


class Cluster:
    """One API server. Use as `async with await Cluster.connect()`."""

    def __init__(self, api: ApiClient, requests: Counter) -> None:
        """`requests` counts what is asked, by verb and code."""
        self._requests = requests
        self._client = DynamicClient(api)  # never awaited: kinds are known, nothing is discovered
        self._api = api
        self._places = asyncio.Semaphore(MAX_AT_ONCE)
        self.may_write: Callable[[], bool] = lambda: True
        """Asked before everything that changes an object other than a Lease."""

    @classmethod
    async def connect(cls, requests: Counter) -> Self:
        """With the pod's own service account, else with the user's kubeconfig."""
        configuration = Configuration()
        try:
            config.load_incluster_config(client_configuration=configuration)
        except config.ConfigException:
            await config.load_kube_config(client_configuration=configuration)
        return cls(ApiClient(configuration), requests)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._api.close()

    async def apply(self, wanted: Mapping[str, Any], manager: str = FIELD_MANAGER) -> Object:
        """Makes the object so; returns it as the server holds it. Raises `ClusterError`."""
        return await self._apply(wanted, manager=manager)

    async def apply_status(self, wanted: Mapping[str, Any]) -> Object:
        """The same for an object's status alone."""
        return await self._apply(wanted, "/status")

    async def get(self, kind: ObjectKind, namespace: str, name: str) -> Object | None:
        """The object, or None if there is none."""
        try:
            return await self._ask("get", kind, namespace, name)
        except ClusterError as error:
            if error.gone:
                return None
            raise

    async def items(
        self, kind: ObjectKind, namespace: str | None = None, selector: str | None = None
    ) -> list[Object]:
        """All objects of a kind; `selector` is one of labels."""
        answer = await self._ask("get", kind, namespace, None, label_selector=selector)
        items: list[Object] = answer["items"]
        return [{**item, "apiVersion": kind.api_version, "kind": kind.name} for item in items]

    async def delete(self, kind: ObjectKind, namespace: str, name: str, uid: str) -> None:
        """Deletes this very object, and lets the cluster delete what it owns; gone is fine."""
        body = {"propagationPolicy": "Background", "preconditions": {"uid": uid}}
        try:
            await self._ask("delete", kind, namespace, name, body=body)
        except ClusterError as error:
            if error.status not in (NOT_FOUND, CONFLICT):
                raise

    async def create(self, wanted: Mapping[str, Any]) -> Object:
        """Makes an object that is not there yet; raises `ClusterError` if it is."""
        kind = BY_NAME[wanted["kind"]]
        return await self._ask("post", kind, wanted["metadata"]["namespace"], None, body=wanted)

    async def replace(self, wanted: Mapping[str, Any]) -> Object:
        """Writes a whole object, if nobody has written it since it was read."""
        kind, meta = BY_NAME[wanted["kind"]], wanted["metadata"]
        return await self._ask("put", kind, meta["namespace"], meta["name"], body=wanted)

    async def serves(self, kind: ObjectKind) -> bool:
        """Whether the cluster knows a kind that not every cluster has."""
        try:
            answer = await self._request("get", kind.path)
        except ClusterError as error:
            if error.gone:
                return False
            raise
        return any(resource["name"] == kind.plural for resource in answer["resources"])

    async def allows(self, attributes: Mapping[str, str]) -> bool:
        """Whether this user may do what the attributes of a review say."""
        body = {
            "apiVersion": ACCESS_REVIEW.api_version,
            "kind": ACCESS_REVIEW.name,
            "spec": {"resourceAttributes": dict(attributes)},
        }
        answer = await self._ask("post", ACCESS_REVIEW, None, None, body=body)
        return bool(answer["status"]["allowed"])

    async def event(
        self, about: Mapping[str, Any], *, warning: bool, reason: str, note: str
    ) -> None:
        """Posts an event about an object."""
        meta = about["metadata"]
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")
        body = {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.name,
            "metadata": {"generateName": f"{meta['name']}-", "namespace": meta["namespace"]},
            "eventTime": now.replace("+00:00", "Z"),
            "type": "Warning" if warning else "Normal",
            "reason": reason,
            "note": note[:MAX_NOTE],
            "action": "Reconcile",
            "reportingController": MANAGER,
            "reportingInstance": FIELD_MANAGER,
            "regarding": {
                "apiVersion": about["apiVersion"],
                "kind": about["kind"],
                "name": meta["name"],
                "namespace": meta["namespace"],
                "uid": meta["uid"],
            },
        }
        await self._ask("post", EVENT, meta["namespace"], None, body=body)

    async def _apply(
        self, wanted: Mapping[str, Any], subresource: str = "", manager: str = FIELD_MANAGER
    ) -> Object:
        kind, meta = BY_NAME[wanted["kind"]], wanted["metadata"]
        return await self._ask(
            "patch",
            kind,
            meta["namespace"],
            meta["name"] + subresource,
            body=wanted,
            content_type="application/apply-patch+yaml",
            field_manager=manager,
            force_conflicts=True,
        )

    async def _ask(
        self, method: str, kind: ObjectKind, namespace: str | None, name: str | None, **options: Any
    ) -> Object:
        path = kind.at(namespace, name)
        if kind in ASIDE:
            return await self._request(method, path, **options)
        async with self._places:
            if method != "get" and not self.may_write():
                reason = "not asked: the lease is not held any more"
                raise ClusterError(f"{method} {path}", 0, reason)
            return await self._request(method, path, **options)

    async def _request(self, method: str, path: str, **options: Any) -> Object:
        what = f"{method} {path}"
        try:
            response = await self._client.request(
                method, path, serialize=False, _request_timeout=SECONDS, query_params=[], **options
            )
            answer: Object = await response.json()
        except ApiException as error:
            status = int(error.status or 0)
            self._requests.labels(method, str(status)).inc()
            raise ClusterError(what, status, _reason(error)) from None
        except (TimeoutError, OSError, aiohttp.ClientError) as error:
            self._requests.labels(method, "none").inc()
            raise ClusterError(what, 0, f"no answer: {error or type(error).__name__}") from None
        self._requests.labels(method, str(response.status)).inc()
        return answer


def _reason(error: ApiException) -> str:
    """What the API server said, in its own words."""
    try:
        return str(json.loads(error.body or "")["message"])
    except (ValueError, TypeError, KeyError):
        return f"{error.status} {error.reason}"
