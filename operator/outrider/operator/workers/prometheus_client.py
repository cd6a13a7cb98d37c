"""Client of the HTTP API of a Prometheus, with the credentials that a service names.

One query for all pods of a service. A redirect is not followed, because the credentials would go
with it. Leaves when to ask to `background`, and what answers say to `control.prometheus`.
"""

import asyncio
import base64
import contextlib
import re
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

import aiohttp

from outrider.operator.cluster.client import ClusterError
from outrider.operator.cluster.kinds import CONFIG_MAP, SECRET, ObjectKind
from outrider.operator.control import prometheus
from outrider.operator.control.prometheus import (
    Answer,
    PrometheusError,
    ScrapedPod,
    SeriesLabels,
)
from outrider.operator.spec import Prometheus
from outrider.operator.workers.http_body import BodyTooLong, read_body

TIMEOUT_SECONDS = 5.0
"""Longest wait for an answer, the wait for a connection included."""
MAX_CONNECTIONS = 16
"""Connections to one server, over all services."""
MAX_BYTES = 16 << 20
"""Most bytes of one answer; a target's series of a minute take about 10 KB."""
KEPT_SECONDS = 60.0
"""Time for which what a Secret or ConfigMap holds is used without looking again."""
MAX_QUOTED = 200
"""Characters of a server's own words that are quoted."""
PEM_CERTIFICATE = re.compile(
    r"^-----BEGIN (?P<label>[A-Z0-9 ]*CERTIFICATE)-----.*?^-----END (?P=label)-----",
    re.MULTILINE | re.DOTALL,
)
DENIED = frozenset({401, 403})
OK = 200


class ObjectReader(Protocol):
    """Reads single objects of a cluster."""

    async def get(self, kind: ObjectKind, namespace: str, name: str) -> dict[str, Any] | None:
        """Return the object, or None if there is none. Raises `ClusterError`."""


@dataclass(frozen=True, slots=True)
class PodsQuery:
    """A question for the newest scrapes of a service's pods."""

    namespace: str
    """The service's."""
    server: Prometheus
    pods: tuple[ScrapedPod, ...]
    seconds: int
    """Age of the oldest scrapes that count."""

    @property
    def labels(self) -> SeriesLabels:
        """Labels by which the series are found."""
        server = self.server
        others = tuple((one.label, one.value) for one in server.matchers)
        return SeriesLabels(namespace=server.namespace_label, pod=server.pod_label, others=others)

    @property
    def promql(self) -> str:
        """The query as Prometheus takes it."""
        return prometheus.query(self.namespace, self.pods, self.labels, self.seconds)


class PrometheusClient:
    """Connections to the servers of all services. Use as `async with`."""

    def __init__(self, objects: ObjectReader, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._objects = objects
        self._timeout = timeout_seconds
        self._http: aiohttp.ClientSession | None = None
        self._kept: dict[tuple[str, str, str], tuple[float, Mapping[str, str]]] = {}
        self._contexts: dict[str, ssl.SSLContext] = {}

    async def __aenter__(self) -> Self:
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, limit_per_host=MAX_CONNECTIONS),
            timeout=aiohttp.ClientTimeout(total=self._timeout),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._http is not None:
            await self._http.close()

    async def ask(self, question: PodsQuery) -> Answer:
        """Return what the server says; where it says nothing, the answer's `failure` says why."""
        try:
            body = await self._post(question)
            read = prometheus.read  # in a thread, because many points take a while
            return await asyncio.to_thread(read, body, question.pods, question.labels, time.time())
        except PrometheusError as error:
            return Answer(failure=f"{question.server.url}: {error}")

    async def _post(self, question: PodsQuery) -> bytes:
        assert self._http is not None, "use `async with`"
        headers, context = await self._headers(question), await self._context(question)
        try:
            async with self._http.post(
                f"{question.server.url.rstrip('/')}/api/v1/query",
                data={"query": question.promql, "timeout": f"{self._timeout:g}s"},
                headers=headers,
                ssl=context,
                allow_redirects=False,
            ) as answer:
                body = await read_body(answer, MAX_BYTES)
                if answer.status != OK:
                    raise PrometheusError(self._refusal(question, answer, body))
                return body
        except TimeoutError:
            raise PrometheusError(f"no answer within {self._timeout:g} s") from None
        except (aiohttp.ClientError, BodyTooLong, OSError) as error:
            raise PrometheusError(str(error) or type(error).__name__) from None

    def _refusal(self, question: PodsQuery, answer: aiohttp.ClientResponse, body: bytes) -> str:
        if answer.status in DENIED:  # the Secret may have been renewed
            self._kept = {key: kept for key, kept in self._kept.items() if key[0] != SECRET.name}
        words = prometheus.failure(body)[:MAX_QUOTED]
        return f"HTTP {answer.status} {answer.reason}" + (f": {words}" if words else "")

    async def _headers(self, question: PodsQuery) -> dict[str, str]:
        token, user = question.server.token_secret_ref, question.server.basic_auth_secret_ref
        if token is not None:
            data = await self._data(SECRET, question.namespace, token.name)
            return {"Authorization": f"Bearer {_entry(SECRET, token.name, data, token.key)}"}
        if user is not None:
            data = await self._data(SECRET, question.namespace, user.name)
            name, word = (_entry(SECRET, user.name, data, k) for k in ("username", "password"))
            pair = base64.b64encode(f"{name}:{word}".encode()).decode()
            return {"Authorization": f"Basic {pair}"}
        return {}

    async def _context(self, question: PodsQuery) -> ssl.SSLContext | bool:
        """Return whom to trust; True: the authorities that the system knows."""
        reference = question.server.ca_config_map_ref
        if reference is None:
            return True
        data = await self._data(CONFIG_MAP, question.namespace, reference.name)
        text = _entry(CONFIG_MAP, reference.name, data, reference.key)
        if text not in self._contexts:
            try:
                self._contexts[text] = _trusting(text)
            except (ssl.SSLError, ValueError, TypeError):  # TypeError: not ASCII
                raise PrometheusError(
                    f"ConfigMap {reference.name}: {reference.key} holds no certificate in PEM"
                ) from None
        return self._contexts[text]

    async def _data(self, kind: ObjectKind, namespace: str, name: str) -> Mapping[str, str]:
        """Return the entries of a Secret or ConfigMap; raise `PrometheusError`."""
        key, now = (kind.name, namespace, name), time.monotonic()
        at, data = self._kept.get(key, (-KEPT_SECONDS, {}))
        if now - at < KEPT_SECONDS:
            return data
        try:
            found = await self._objects.get(kind, namespace, name)
        except ClusterError as error:
            raise PrometheusError(f"{kind.name} {name}: {error.reason}") from None
        if found is None:
            raise PrometheusError(f"{kind.name} {name}: there is none in the namespace {namespace}")
        self._kept[key] = (now, found.get("data") or {})
        return self._kept[key][1]


def _trusting(text: str) -> ssl.SSLContext:
    """Return a context that trusts the certificates in a bundle, and no other.

    What stands between them are comments in any script. Raises `ValueError` where there is none,
    because with empty data the system's authorities would be trusted; what `ssl` raises else.
    """
    blocks = [found.group() for found in PEM_CERTIFICATE.finditer(text)]
    if not blocks:
        raise ValueError("no certificate")
    return ssl.create_default_context(cadata="\n".join(blocks))


def _entry(kind: ObjectKind, name: str, data: Mapping[str, str], key: str) -> str:
    """Return one entry as text; raise `PrometheusError` where it is missing."""
    if key not in data:
        raise PrometheusError(f"{kind.name} {name}: there is no key {key}")
    if kind is not SECRET:
        return data[key]
    with contextlib.suppress(ValueError):
        text = base64.b64decode(data[key]).decode().strip()
        if text and text.isprintable():  # anything else is no header
            return text
    raise PrometheusError(f"{kind.name} {name}: {key} is not one line of text")
