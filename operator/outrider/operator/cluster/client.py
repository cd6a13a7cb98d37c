"""Client of the API server: server-side apply, deletion, status and events.

The only module that sends requests to it, beside kopf's watches. Decides nothing.
"""

import asyncio
import datetime
import json
import re
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any, Self

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, ApiException, Configuration
from kubernetes.aio.dynamic import DynamicClient
from prometheus_client import Counter

from outrider.operator.cluster.kinds import ACCESS_REVIEW, BY_NAME, EVENT, LEASE, ObjectKind
from outrider.operator.naming import FIELD_MANAGER, MANAGER

Object = dict[str, Any]
SECONDS = 20.0
"""Longest wait for one answer of the API server."""
MAX_AT_ONCE = 16
"""Requests of passes in flight at once, over all services: an API server shares its capacity among
its clients, and more of ours would only wait there."""
UNTHROTTLED = frozenset((LEASE, ACCESS_REVIEW))
"""Kinds that need no lease and no slot: leadership must be renewed in time."""
NOT_FOUND, CONFLICT, INVALID, TOO_MANY, FAILED = 404, 409, 422, 429, 500
MISTYPED = "failed to create typed patch object"
"""How an API server begins its answer to an apply with a field that the kind does not have, or of
another type: 500, though the object is at fault (kubernetes#122480)."""
NO_DRY_RUN = "does not support dry run"
"""What an API server says of a webhook that it may not ask in a dry run."""
MAX_RETRY_AFTER = 60.0
"""Longest time for which a server that asks for patience is left alone."""
WARNING, QUOTED = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"'), re.compile(r"\\(.)")
"""The text in a header with a warning, and a character in it that a backslash quotes."""
PAGE = 500
"""Objects of one answer to a list, as in kubectl; the rest is asked for by the answer's token."""
MAX_NOTE = 1024
"""Characters of an event's note, the API's limit."""
_needs_lease: ContextVar[bool] = ContextVar("needs_lease", default=False)
"""True in the task of a request that only the holder of the Lease may make."""


class ClusterError(Exception):
    """The API server refused, or did not answer; the message names the request."""

    def __init__(self, request: str, status: int, reason: str, retry_after: float = 0.0) -> None:
        """`status` 0: no answer; `retry_after`: seconds for which the server wants to be left
        alone."""
        super().__init__(f"{request}: {reason}")
        self.status = status
        self.reason = reason
        self.retry_after = retry_after

    @property
    def gone(self) -> bool:
        """True if the object does not exist."""
        return self.status == NOT_FOUND

    @property
    def transient(self) -> bool:
        """True if a retry may succeed: the server failed, not the object.

        An apply always takes its fields, so its conflict means writers at once: objects that are
        made together count against one ResourceQuota (kubernetes#67761).
        """
        if self.reason.startswith(MISTYPED):
            return False
        return self.status in (0, CONFLICT, TOO_MANY) or self.status >= FAILED


class Cluster:
    """One API server. Use as `async with await Cluster.connect()`."""

    def __init__(self, api: ApiClient, requests: Counter) -> None:
        """`requests` counts requests, by verb and code."""
        self._requests = requests
        self._client = DynamicClient(api)  # never awaited: kinds are known, nothing is discovered
        self._api = api
        self._slots = asyncio.Semaphore(MAX_AT_ONCE)
        self.may_write: Callable[[], bool] = lambda: True
        """Checked for every write to an object other than a Lease, as it is sent: a connection may
        take longer than the Lease lasts."""
        trace = aiohttp.TraceConfig()
        trace.on_request_headers_sent.append(self._check_lease)  # called before they are
        api.configuration.trace_configs = [trace]

    @classmethod
    async def connect(cls, requests: Counter) -> Self:
        """Connect with the pod's own service account, else with the user's kubeconfig."""
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
        """Apply the object; return it as the server holds it. Raises `ClusterError`."""
        return await self._apply(wanted, manager=manager)

    async def dry_run(self, wanted: Mapping[str, Any]) -> None:
        """Ask whether an apply would be taken, unknown fields and all; nothing is stored.

        Raises `ClusterError`. A webhook that knows no dry runs is no objection.
        """
        strict = [("fieldValidation", "Strict")]
        try:
            await self._apply(wanted, dry_run="All", query_params=strict)
        except ClusterError as error:
            if NO_DRY_RUN not in error.reason:
                raise

    async def apply_status(self, wanted: Mapping[str, Any]) -> Object:
        """Apply an object's status alone."""
        return await self._apply(wanted, "status")

    async def warnings(self, wanted: Mapping[str, Any]) -> list[str]:
        """Ask what an apply of an object's status alone would be warned of; nothing is stored."""
        headers: list[str] = []
        await self._apply(wanted, "status", dry_run="All", warnings=headers)
        return [QUOTED.sub(r"\1", text) for one in headers for text in WARNING.findall(one)]

    async def get(self, kind: ObjectKind, namespace: str, name: str) -> Object | None:
        """Return the object, or None if there is none."""
        try:
            return await self._ask("get", kind, namespace, name)
        except ClusterError as error:
            if error.gone:
                return None
            raise

    async def items(
        self, kind: ObjectKind, namespace: str | None = None, selector: str | None = None
    ) -> list[Object]:
        """Return all objects of a kind, read page by page; `selector` is one of labels."""
        items: list[Object] = []
        where: dict[str, Any] = {"label_selector": selector, "limit": PAGE}
        while True:
            answer = await self._ask("get", kind, namespace, None, **where)
            items += answer["items"]
            if not (rest := answer["metadata"].get("continue")):
                break
            where["_continue"] = rest
        return [{**item, "apiVersion": kind.api_version, "kind": kind.name} for item in items]

    async def delete(self, kind: ObjectKind, namespace: str, name: str, uid: str) -> None:
        """Delete this very object and what it owns; one that is gone is no error."""
        body = {"propagationPolicy": "Background", "preconditions": {"uid": uid}}
        try:
            await self._ask("delete", kind, namespace, name, body=body)
        except ClusterError as error:
            if error.status not in (NOT_FOUND, CONFLICT):
                raise

    async def create(self, wanted: Mapping[str, Any]) -> Object:
        """Create an object; raise `ClusterError` if it exists."""
        kind = BY_NAME[wanted["kind"]]
        return await self._ask("post", kind, wanted["metadata"]["namespace"], None, body=wanted)

    async def replace(self, wanted: Mapping[str, Any]) -> Object:
        """Replace a whole object, unless it was written since it was read."""
        kind, meta = BY_NAME[wanted["kind"]], wanted["metadata"]
        return await self._ask("put", kind, meta["namespace"], meta["name"], body=wanted)

    async def serves(self, kind: ObjectKind) -> bool:
        """Return True if the cluster serves an optional kind."""
        try:
            answer = await self._request("get", kind.path)
        except ClusterError as error:
            if error.gone:
                return False
            raise
        return any(resource["name"] == kind.plural for resource in answer["resources"])

    async def allows(self, attributes: Mapping[str, str]) -> bool:
        """Return True if this user may do what the attributes of a review say."""
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
        """Post an event about an object."""
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
        self,
        wanted: Mapping[str, Any],
        subresource: str | None = None,
        manager: str = FIELD_MANAGER,
        **options: Any,
    ) -> Object:
        kind, meta = BY_NAME[wanted["kind"]], wanted["metadata"]
        return await self._ask(
            "patch",
            kind,
            meta["namespace"],
            meta["name"],
            subresource,
            body=wanted,
            content_type="application/apply-patch+yaml",
            field_manager=manager,
            force_conflicts=True,
            **options,
        )

    async def _ask(
        self,
        method: str,
        kind: ObjectKind,
        namespace: str | None,
        name: str | None,
        subresource: str | None = None,
        **options: Any,
    ) -> Object:
        path = kind.at(namespace, name, subresource)
        if kind in UNTHROTTLED:
            return await self._request(method, path, **options)
        async with self._slots:
            before = _needs_lease.set(method != "get")
            try:
                return await self._request(method, path, **options)
            finally:
                _needs_lease.reset(before)

    async def _check_lease(
        self,
        session: aiohttp.ClientSession,
        context: SimpleNamespace,
        request: aiohttp.TraceRequestHeadersSentParams,
    ) -> None:
        """Raises `ClusterError` for a request that may not be made any more."""
        if _needs_lease.get() and not self.may_write():
            reason = "not asked: the lease is not held any more"
            raise ClusterError(f"{request.method} {request.url.path}", 0, reason)

    async def _request(
        self, method: str, path: str, warnings: list[str] | None = None, **options: Any
    ) -> Object:
        """Return the answer; headers with warnings are added to `warnings`."""
        request = f"{method} {path}"
        options = {"query_params": [], **options}
        try:
            response = await self._client.request(
                method, path, serialize=False, _request_timeout=SECONDS, **options
            )
            answer: Object = await response.json()
        except ApiException as error:
            status = int(error.status or 0)
            self._requests.labels(method, str(status)).inc()
            raise ClusterError(request, status, _reason(error), _retry_after(error)) from None
        except (TimeoutError, OSError, aiohttp.ClientError) as error:
            self._requests.labels(method, "none").inc()
            why = str(error) or type(error).__name__
            raise ClusterError(request, 0, f"no answer: {why}") from None
        self._requests.labels(method, str(response.status)).inc()
        if warnings is not None:
            warnings += response.headers.getall("Warning", ())
        return answer


def _reason(error: ApiException) -> str:
    """Return the API server's own message."""
    try:
        return str(json.loads(error.body or "")["message"])
    except (ValueError, TypeError, KeyError):
        return f"{error.status} {error.reason}"


def _retry_after(error: ApiException) -> float:
    """Return the seconds that the server asks for; 0: it does not, or by a date."""
    wanted = (error.headers or {}).get("Retry-After", "")
    return min(float(wanted), MAX_RETRY_AFTER) if wanted.isdecimal() else 0.0
