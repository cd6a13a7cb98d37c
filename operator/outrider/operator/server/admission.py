"""Admission webhook that returns warnings as a service is applied.

It refuses nothing; every replica answers, because it needs neither the lease nor a cache. Leaves
the warnings to `advice`, and certificate and webhook configuration to the chart.
"""

import asyncio
import contextlib
import functools
import json
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web
from prometheus_client import Counter

from outrider.operator.server import advice
from outrider.operator.spec import ServiceReader, SpecError

PATH = "/warnings"
CERTIFICATE, KEY = "tls.crt", "tls.key"
"""Files of a mounted Secret of type kubernetes.io/tls."""
RENEWAL_CHECK_SECONDS = 30.0
"""Seconds between two checks for a renewed certificate."""
MAX_BYTES = 8 << 20
"""Most bytes of one review: an object and the one before it."""
MAX_CHARACTERS = 250
"""Most characters of one warning; kubectl and API servers cut what is longer."""
OPERATIONS, OTHER = ("CREATE", "UPDATE", "DELETE", "CONNECT"), "other"
"""Operations of a review; any other value is counted as `other`, so that labels are bounded."""


@dataclass(frozen=True, slots=True)
class ListenPlace:
    """Address and certificate of the webhook."""

    host: str
    port: int
    certificates: Path
    """Folder with `tls.crt` and `tls.key`; replaced files are taken up."""


def reviewed(review: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to an AdmissionReview: allowed, with one warning for each sentence."""
    request = review["request"]
    body = request.get("object")  # a deletion has none
    warnings = [warning[:MAX_CHARACTERS] for warning in _warnings(body)] if body else []
    answer = {"uid": request["uid"], "allowed": True, "warnings": warnings}
    return {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": answer}


def _warnings(body: Mapping[str, Any]) -> Iterator[str]:
    reader = ServiceReader()
    try:
        service = reader.read(body)
    except SpecError as error:  # the definitions may be newer than this program
        yield from (f"this operator cannot read it: {line}" for line in str(error).splitlines())
        return
    yield from (*advice.on_unknown(reader.unknown), *advice.on(service))


@contextlib.asynccontextmanager
async def serving(place: ListenPlace, reviews: Counter) -> AsyncIterator[None]:
    """Serve until the block ends; raise `OSError` without a certificate or an address.

    `reviews` counts answers, by operation and result: allowed, warned (and allowed), malformed.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    _load(context, place)
    app = web.Application(client_max_size=MAX_BYTES)
    app.router.add_post(PATH, functools.partial(_answer, reviews))
    runner = web.AppRunner(app, handle_signals=False, shutdown_timeout=1.0, access_log=None)
    await runner.setup()
    renewing = asyncio.ensure_future(_renew(context, place))
    try:
        await web.TCPSite(runner, place.host, place.port, ssl_context=context).start()
        yield
    finally:
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)
        await runner.cleanup()


async def _answer(reviews: Counter, request: web.Request) -> web.Response:
    try:
        review = await request.json()
        answer, operation = reviewed(review), review["request"].get("operation")
    except (json.JSONDecodeError, KeyError, AttributeError, TypeError) as error:
        reviews.labels(OTHER, "malformed").inc()
        raise web.HTTPBadRequest(text=f"not an AdmissionReview: {error!r}") from None
    known = operation if operation in OPERATIONS else OTHER
    reviews.labels(known, "warned" if answer["response"]["warnings"] else "allowed").inc()
    return web.json_response(answer)


async def _renew(context: ssl.SSLContext, place: ListenPlace) -> None:
    """Load a renewed certificate, for new connections."""
    shown = _stamp(place)
    while True:
        await asyncio.sleep(RENEWAL_CHECK_SECONDS)
        with contextlib.suppress(OSError):  # half replaced: the next check finds the whole
            found = _stamp(place)
            if found != shown:
                _load(context, place)
                shown = found


def _load(context: ssl.SSLContext, place: ListenPlace) -> None:
    context.load_cert_chain(place.certificates / CERTIFICATE, place.certificates / KEY)


def _stamp(place: ListenPlace) -> tuple[int, ...]:
    return tuple((place.certificates / name).stat().st_mtime_ns for name in (CERTIFICATE, KEY))
