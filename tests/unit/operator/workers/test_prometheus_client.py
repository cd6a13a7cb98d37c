"""Queries over real sockets: credentials, authorities, and everything that can go wrong."""

import asyncio
import base64
import ssl
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from aiohttp import web

from outrider.contract.settings import Role
from outrider.operator.cluster.client import ClusterError
from outrider.operator.cluster.kinds import ObjectKind
from outrider.operator.control import prometheus
from outrider.operator.control.prometheus import Answer, ScrapedPod
from outrider.operator.spec import Prometheus
from outrider.operator.workers.prometheus_client import MAX_BYTES, PodsQuery, PrometheusClient
from tests.certificate_files import ELSEWHERE_CERT, LOOPBACK_CERT, LOOPBACK_KEY
from tests.unit.operator.workers.fake_prometheus import FakePrometheus, serving

POD = ScrapedPod("u", "chat-target-a", Role.TARGET, 0.0)


class Objects:
    """Secrets and ConfigMaps of one namespace, and how often they were read."""

    def __init__(self, **data: Mapping[str, str]) -> None:
        self.data = dict(data)
        self.reads = 0
        self.refusal: ClusterError | None = None

    async def get(self, kind: ObjectKind, namespace: str, name: str) -> dict[str, Any] | None:
        self.reads += 1
        if self.refusal is not None:
            raise self.refusal
        return {"data": dict(self.data[name])} if name in self.data else None


def secret(**entries: str) -> dict[str, str]:
    return {key: base64.b64encode(text.encode()).decode() for key, text in entries.items()}


def question(url: str, **server: Any) -> PodsQuery:
    return PodsQuery("default", Prometheus(url=url, **server), (POD,), 60)


def asked(
    fake: FakePrometheus,
    objects: Objects | None = None,
    times: int = 1,
    context: ssl.SSLContext | None = None,
    timeout_seconds: float = 20.0,
    **server: Any,
) -> list[Answer]:
    """Ask a server so many times, one after another."""

    async def scene() -> list[Answer]:
        async with (
            asyncio.timeout(60),
            serving(fake, context),
            PrometheusClient(objects or Objects(), timeout_seconds) as client,
        ):
            return [await client.ask(question(fake.url, **server)) for _ in range(times)]

    return asyncio.run(scene())


def test_a_query_is_posted_below_the_server_s_path() -> None:
    fake = FakePrometheus()

    async def scene() -> Answer:
        async with serving(fake), PrometheusClient(Objects()) as client:
            return await client.ask(question(f"{fake.url}/select/0/prometheus/"))

    answer = asyncio.run(scene())
    ((path, promql, credentials),) = fake.asked
    assert path == "/select/0/prometheus/api/v1/query"
    assert 'pod=~"chat-target-a"' in promql
    assert credentials == ""
    assert (answer.failure, list(answer.problems)) == ("", ["chat-target-a"])


def test_a_token_and_a_name_with_its_password_go_with_the_query() -> None:
    objects = Objects(
        reader=secret(token="t0k\n", other="else"), basic=secret(username="jo", password="ü:1")
    )
    fake = FakePrometheus()
    asked(fake, objects, tokenSecretRef={"name": "reader"})
    asked(fake, objects, tokenSecretRef={"name": "reader", "key": "other"})
    asked(fake, objects, basicAuthSecretRef={"name": "basic"})
    pair = base64.b64encode("jo:ü:1".encode()).decode()
    assert [one[2] for one in fake.asked] == ["Bearer t0k", "Bearer else", f"Basic {pair}"]


def test_a_secret_is_read_once_a_minute_and_again_after_it_was_refused() -> None:
    objects, fake = Objects(reader=secret(token="old")), FakePrometheus()
    asked(fake, objects, times=3, tokenSecretRef={"name": "reader"})
    assert objects.reads == 1

    async def renewed(request: web.Request) -> web.Response:
        if request.headers["Authorization"] == "Bearer new":
            return web.Response(text='{"status": "success", "data": {"resultType": "matrix",'
                                     ' "result": []}}')  # fmt: skip
        objects.data["reader"] = secret(token="new")
        return web.json_response({"status": "error", "error": "who are you?"}, status=401)

    fake.handle = renewed
    first, second = asked(fake, objects, times=2, tokenSecretRef={"name": "reader"})
    assert first.failure == f"{fake.url}: HTTP 401 Unauthorized: who are you?"
    assert second.failure == ""


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({}, "Secret reader: there is none in the namespace default"),
        ({"reader": secret(tokens="t")}, "Secret reader: there is no key token"),
        ({"reader": secret(token="a\r\nHost: b")}, "Secret reader: token is not one line of text"),
        ({"reader": {"token": "%"}}, "Secret reader: token is not one line of text"),
    ],
)
def test_a_secret_without_a_token_is_named_and_nothing_is_asked(
    data: dict[str, dict[str, str]], words: str
) -> None:
    fake = FakePrometheus()
    (answer,) = asked(fake, Objects(**data), tokenSecretRef={"name": "reader"})
    assert answer.failure == f"{fake.url}: {words}"
    assert fake.asked == []


def test_a_secret_that_the_operator_may_not_read_is_named() -> None:
    objects, fake = Objects(), FakePrometheus()
    objects.refusal = ClusterError("get secrets", 403, 'secrets "reader" is forbidden')
    (answer,) = asked(fake, objects, tokenSecretRef={"name": "reader"})
    assert answer.failure == f'{fake.url}: Secret reader: secrets "reader" is forbidden'


def tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(LOOPBACK_CERT, LOOPBACK_KEY)
    return context


def test_only_authorities_that_are_named_are_trusted() -> None:
    objects = Objects(
        right={"ca.crt": LOOPBACK_CERT.read_text(), "other": ELSEWHERE_CERT.read_text()},
        wrong={"ca.crt": "no certificate"},
    )
    fake, context = FakePrometheus(), tls()
    (trusted,) = asked(fake, objects, context=context, caConfigMapRef={"name": "right"})
    assert trusted.failure == ""
    reference = {"name": "right", "key": "other"}
    (other,) = asked(fake, objects, context=context, caConfigMapRef=reference)
    assert "certificate verify failed" in other.failure
    (unknown,) = asked(fake, objects, context=context)
    assert "certificate verify failed" in unknown.failure
    (garbage,) = asked(fake, objects, context=context, caConfigMapRef={"name": "wrong"})
    assert garbage.failure.endswith("ConfigMap wrong: ca.crt holds no certificate in PEM")
    assert len(fake.asked) == 1


def test_comments_of_a_bundle_may_be_in_any_script() -> None:
    bundle = f"# Főtanúsítvány\n{LOOPBACK_CERT.read_text()}\n# Autorité\n"
    fake, objects = FakePrometheus(), Objects(bundle={"ca.crt": bundle})
    (answer,) = asked(fake, objects, context=tls(), caConfigMapRef={"name": "bundle"})
    assert answer.failure == ""


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n",
        "ő",
        "-----BEGIN CERTIFICATE-----\nő\n-----END CERTIFICATE-----\n",
        "-----BEGIN CERTIFICATE-----\n\0\n-----END CERTIFICATE-----\n",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        LOOPBACK_KEY.read_text(),
    ],
)
def test_a_bundle_without_a_certificate_trusts_nobody_and_is_named(text: str) -> None:
    fake, objects = FakePrometheus(), Objects(wrong={"ca.crt": text})
    (answer,) = asked(fake, objects, context=tls(), caConfigMapRef={"name": "wrong"})
    words = "ConfigMap wrong: ca.crt holds no certificate in PEM"
    assert answer.failure == f"{fake.url}: {words}"


def test_an_answer_is_read_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []

    def read(*_: object) -> Answer:
        threads.append(threading.get_ident())
        return Answer()

    monkeypatch.setattr(prometheus, "read", read)
    assert asked(FakePrometheus()) == [Answer()]
    assert threads != [threading.get_ident()]


async def redirecting(request: web.Request) -> web.Response:
    return web.Response(status=307, headers={"Location": "/elsewhere"})


async def refusing(request: web.Request) -> web.Response:
    return web.json_response({"status": "error", "error": "parse error " * 99}, status=400)


async def failing(request: web.Request) -> web.Response:
    return web.Response(status=502, text="<html>a proxy's own words</html>")


async def enormous(request: web.Request) -> web.Response:
    return web.Response(body=b" " * (MAX_BYTES + 1))


async def closing(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.close()
    return web.Response()


@pytest.mark.parametrize(
    ("handle", "words"),
    [
        (redirecting, "HTTP 307 Temporary Redirect"),
        (refusing, "HTTP 400 Bad Request: " + ("parse error " * 99)[:200]),
        (failing, "HTTP 502 Bad Gateway"),
        (enormous, f"more than {MAX_BYTES} bytes"),
        (closing, "Server disconnected"),
    ],
)
def test_a_server_that_does_not_answer_as_it_should_is_quoted(
    handle: Callable[[web.Request], Any], words: str
) -> None:
    fake = FakePrometheus(handle)
    (answer,) = asked(fake)
    assert answer.failure == f"{fake.url}: {words}"
    assert len(fake.asked) == 1


def test_a_server_that_hangs_is_given_up() -> None:
    async def hanging(request: web.Request) -> web.Response:
        await asyncio.sleep(3600)
        return web.Response()

    fake = FakePrometheus(hanging)

    async def scene() -> Answer:
        async with serving(fake), PrometheusClient(Objects(), 0.2) as client:
            return await client.ask(question(fake.url))

    assert asyncio.run(scene()).failure == f"{fake.url}: no answer within 0.2 s"


def test_a_server_that_is_not_there_is_named() -> None:
    async def scene() -> Answer:
        async with serving(FakePrometheus()) as gone:
            url = gone.url
        async with PrometheusClient(Objects()) as client:
            return await client.ask(question(url))

    assert "Connect call failed" in asyncio.run(scene()).failure
