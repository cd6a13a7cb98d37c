"""An OpenAI-compatible endpoint: its address, its key, and whether it serves the model.

Sending requests is `exchange`'s.
"""

import json
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from outrider.cli.access import key_from, roots
from outrider.cli.failures import BadInput, Failure
from outrider.cli.load.answer import error_words

CONNECT_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The endpoint that requests go to."""

    url: str
    """Base of the API, which usually ends in /v1."""
    key: str | None = None
    trusted: Path | None = None
    """PEM file of the roots to trust; None: those that httpx trusts."""

    def client(self) -> httpx.AsyncClient:
        """A client without a limit of connections; `exchange` limits the time of each request."""
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        return httpx.AsyncClient(
            base_url=self.url,
            headers=headers,
            timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),
            verify=self._checked(),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
        )

    def _checked(self) -> ssl.SSLContext | bool:
        if self.trusted is None:
            return True
        context = ssl.create_default_context(cafile=self.trusted)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as gRPC: no issuer is needed
        return context


def endpoint(url: str, key_variable: str | None, trusted: Path | None = None) -> Endpoint:
    """From the options; raises `BadInput`."""
    if not _is_http(url):
        raise BadInput(
            f"--url {url}: allowed: http://host:port/v1 or https://host/v1, without a key"
        )
    if trusted is not None and httpx.URL(url).scheme != "https":
        raise BadInput(f"--tls-ca {trusted} needs a --url of https, not {url}")
    if trusted is not None:
        roots(trusted)
    return Endpoint(url=url, key=key_from(key_variable), trusted=trusted)


def _is_http(url: str) -> bool:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        return False
    return parsed.scheme in ("http", "https") and bool(parsed.host) and not parsed.userinfo


async def served_model(client: httpx.AsyncClient, place: Endpoint, model: str | None) -> str:
    """The model to ask for, once the endpoint has said that it serves it.

    None takes the only one. Raises `Failure` if nothing answers, `BadInput` if the key or the
    model is refused.
    """
    served = await _served(client, place)
    names = ", ".join(served) or "none"
    if model is None and len(served) != 1:
        raise BadInput(f"--model is needed: {place.url} serves several; allowed: {names}")
    if model is not None and model not in served:
        raise BadInput(f"--model {model} is not served at {place.url}; allowed: {names}")
    return model or served[0]


async def _served(client: httpx.AsyncClient, place: Endpoint) -> list[str]:
    try:
        response = await client.get("models", timeout=CONNECT_SECONDS)
    except httpx.HTTPError as error:
        raise Failure(f"--url {place.url}: nothing answers there ({words(error)})") from None
    if response.status_code in (401, 403):
        given = "the key of --api-key-env" if place.key else "requests without a key"
        raise BadInput(
            f"--url {place.url} refuses {given} (HTTP {response.status_code}); "
            "allowed: --api-key-env VARIABLE with a key that it knows"
        )
    try:
        response.raise_for_status()
        return [str(entry["id"]) for entry in response.json()["data"]]
    except (httpx.HTTPStatusError, ValueError, KeyError, TypeError):
        raise BadInput(
            f"--url {place.url}: {response.url} answers HTTP {response.status_code} and no list of "
            "models; allowed: the base of an OpenAI-compatible API, which usually ends in /v1"
        ) from None


def words(error: Exception) -> str:
    """Return an error's message, or its kind where it has none."""
    return str(error) or type(error).__name__


def refusal(response: httpx.Response) -> str:
    """The words of an error response whose body was read."""
    try:
        body: Any = json.loads(response.content)
    except ValueError:
        body = response.text
    said = error_words(body) if isinstance(body, dict) else str(body)[:200]
    return f"HTTP {response.status_code}: {said}"
