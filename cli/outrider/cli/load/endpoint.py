"""An OpenAI-compatible endpoint: its address, its key, and the models that it serves."""

import ssl
from dataclasses import dataclass
from pathlib import Path

import httpx

from outrider.cli.access import SYSTEM, key_from, roots
from outrider.cli.failures import BadInput, Failure
from outrider.cli.load.exchange import words

CONNECT_SECONDS = 10.0
SILENT_SECONDS = 600.0
"""Longest wait for the next piece of an answer."""


@dataclass(frozen=True, slots=True)
class LoadEndpoint:
    """The endpoint that requests go to."""

    url: str
    """Base of the API, which usually ends in /v1."""
    key: str | None = None
    trusted: str | None = None
    """PEM file of the roots to trust; None: those that httpx trusts."""

    def client(self, silence: float = SILENT_SECONDS) -> httpx.AsyncClient:
        """Return a client without a limit of connections."""
        verify: ssl.SSLContext | bool = True
        if self.trusted is not None:
            verify = ssl.create_default_context(cafile=self.trusted)
            verify.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as gRPC: no issuer is needed
        return httpx.AsyncClient(
            base_url=self.url,
            headers={"Authorization": f"Bearer {self.key}"} if self.key else {},
            timeout=httpx.Timeout(silence, connect=CONNECT_SECONDS, pool=None),
            verify=verify,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
        )

    async def model(self, client: httpx.AsyncClient, wanted: str | None) -> str:
        """Return the model to ask for, which is `wanted` or the only one.

        Raises `Failure` if nothing answers, `BadInput` if the key or the model is refused.
        """
        try:
            response = await client.get("models", timeout=CONNECT_SECONDS)
        except httpx.HTTPError as error:
            raise Failure(f"--url {self.url}: nothing answers there ({words(error)})") from None
        status = f"HTTP {response.status_code}"
        if response.status_code in (401, 403):
            given = "the key of --api-key-env" if self.key else "requests without --api-key-env"
            raise BadInput(f"--url {self.url} refuses {given} ({status})")
        try:
            served = [str(entry["id"]) for entry in response.json()["data"]]
        except (ValueError, KeyError, TypeError):
            raise BadInput(
                f"--url {self.url}: {response.url} answers {status} and no list of models; "
                "allowed: the base of an OpenAI-compatible API, which usually ends in /v1"
            ) from None
        if wanted is None and len(served) == 1:
            return served[0]
        if wanted is None or wanted not in served:
            asked = f"--model {wanted} is not served" if wanted else "--model is needed"
            raise BadInput(f"{asked} at {self.url}; allowed: {', '.join(served) or 'none'}")
        return wanted


def endpoint(url: str, key_variable: str | None, trusted: str | None) -> LoadEndpoint:
    """Return the endpoint of the options; raises `BadInput`."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = httpx.URL()
    if parsed.scheme not in ("http", "https") or not parsed.host or parsed.userinfo:
        raise BadInput(f"--url {url}: allowed: http://host:port/v1 or https://…, without a key")
    if trusted is not None:
        if parsed.scheme != "https":
            raise BadInput(f"--tls-ca {trusted} needs a --url of https, not {url}")
        if trusted != SYSTEM:
            roots(Path(trusted))
    return LoadEndpoint(url, key_from(key_variable), None if trusted == SYSTEM else trusted)
