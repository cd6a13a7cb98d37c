"""The certificate of a target's servers: exchanged while they run, and refused where it is none."""

import asyncio
import contextlib
import logging
import shutil
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from outrider.contract.settings import SettingsError
from outrider.worker.api.http.connection import OpenConnections
from outrider.worker.api.http.server import CountedListener, listen
from outrider.worker.api.server_certificate import Pair, ServerCertificate
from tests.certificate_files import (
    ELSEWHERE_CERT,
    ELSEWHERE_KEY,
    LOCKED_KEY,
    LOOPBACK_CERT,
    LOOPBACK_KEY,
)

HOST = "127.0.0.1"


class Files:
    """A pair of files that is replaced, each by a rename."""

    def __init__(self, folder: Path) -> None:
        self.certificate, self.key = folder / "tls.crt", folder / "tls.key"
        self.put(LOOPBACK_CERT, LOOPBACK_KEY)

    def put(self, certificate: Path | None = None, key: Path | None = None) -> None:
        for given, file in ((certificate, self.certificate), (key, self.key)):
            if given is not None:
                shutil.copy(given, file.with_suffix(".new")).rename(file)

    def read(self) -> ServerCertificate:
        return ServerCertificate(str(self.certificate), str(self.key))


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@contextlib.asynccontextmanager
async def over_http(certificate: ServerCertificate) -> AsyncIterator[int]:
    """A server as uvicorn makes one; its port."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                writer.write(await reader.readexactly(1))
        writer.close()

    async with await asyncio.start_server(echo, HOST, 0, ssl=certificate.context()) as server:
        yield server.sockets[0].getsockname()[1]


@contextlib.asynccontextmanager
async def over_grpc(certificate: ServerCertificate) -> AsyncIterator[int]:
    server = grpc.aio.server()
    port = server.add_secure_port(f"{HOST}:0", certificate.credentials())
    await server.start()
    yield port
    await server.stop(None)


async def shown(port: int) -> str:
    """What a new connection is shown."""
    return await asyncio.to_thread(ssl.get_server_certificate, (HOST, port))


@pytest.mark.parametrize("serve", [over_http, over_grpc])
def test_new_connections_get_the_certificate_of_now(files: Files, serve: type) -> None:
    async def scene() -> list[str]:
        async with serve(files.read()) as port:
            seen = [await shown(port), await shown(port)]
            files.put(ELSEWHERE_CERT, ELSEWHERE_KEY)
            return [*seen, await shown(port), await shown(port)]

    before, after = LOOPBACK_CERT.read_text(), ELSEWHERE_CERT.read_text()
    assert asyncio.run(scene()) == [before, before, after, after]


def test_an_open_connection_goes_on(files: Files) -> None:
    trusting = ssl.create_default_context(cafile=LOOPBACK_CERT)

    async def scene() -> bytes:
        async with over_http(files.read()) as port:
            reader, writer = await asyncio.open_connection(HOST, port, ssl=trusting)
            writer.write(b"1")
            answered = await reader.readexactly(1)
            files.put(ELSEWHERE_CERT, ELSEWHERE_KEY)
            assert await shown(port) == ELSEWHERE_CERT.read_text()
            writer.write(b"2")
            answered += await reader.readexactly(1)
            writer.close()
            return answered

    assert asyncio.run(scene()) == b"12"


@pytest.mark.parametrize("serve", [over_http, over_grpc])
def test_half_a_pair_is_not_shown_and_told_of_once(
    files: Files, serve: type, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def scene() -> list[str]:
        async with serve(files.read()) as port:
            files.put(certificate=ELSEWHERE_CERT)
            seen = [await shown(port), await shown(port)]
            files.put(key=ELSEWHERE_KEY)
            return [*seen, await shown(port)]

    before, after = LOOPBACK_CERT.read_text(), ELSEWHERE_CERT.read_text()
    assert asyncio.run(scene()) == [before, before, after]
    said = [one.getMessage() for one in caplog.records if one.name.endswith("setting_files")]
    assert [words.partition(":")[0] for words in said] == [
        "the certificate stays as it is",
        f"new connections get the certificate that {files.certificate} has now",
    ]


def test_files_that_are_gone_leave_what_was_read(files: Files) -> None:
    read = files.read()
    before = read.pair.current()
    files.key.unlink()
    assert read.pair.current() is before


def test_files_that_are_replaced_while_they_are_read_are_read_again(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, load = files.read(), ssl.SSLContext.load_cert_chain
    replaced = [(LOOPBACK_CERT, LOOPBACK_KEY)]

    def load_late(context: ssl.SSLContext, *given: str, **options: str) -> None:
        if replaced:
            files.put(*replaced.pop())
        load(context, *given, **options)

    files.put(ELSEWHERE_CERT, ELSEWHERE_KEY)
    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", load_late)
    assert read.pair.current().certificate == LOOPBACK_CERT.read_bytes()
    assert not replaced


@pytest.mark.parametrize(
    ("certificate", "key", "words"),
    [
        (LOOPBACK_CERT, Path("no"), "settings.tls_key: no cannot be read"),
        (Path("no"), LOOPBACK_KEY, "settings.tls_cert: no cannot be read"),
        (LOOPBACK_CERT, ELSEWHERE_KEY, "settings.tls_cert, settings.tls_key: .* are no pair"),
        (LOOPBACK_KEY, LOOPBACK_KEY, "settings.tls_cert, settings.tls_key: .* are no pair"),
        (LOOPBACK_CERT, LOCKED_KEY, "settings.tls_cert, settings.tls_key: .* are no pair"),
    ],
)
def test_what_is_no_pair_is_refused_by_its_settings(
    certificate: Path, key: Path, words: str
) -> None:
    with pytest.raises(SettingsError, match=f"^{words}"):
        Pair.read(str(certificate), str(key))


def test_a_private_key_is_shown_nowhere(files: Files) -> None:
    assert "PRIVATE" not in repr(files.read().pair.current())


def test_connections_on_which_tls_does_not_begin_are_bounded() -> None:
    async def main() -> None:
        context = ServerCertificate(str(LOOPBACK_CERT), str(LOOPBACK_KEY)).context()
        listener = CountedListener(listen(f"{HOST}:0"), OpenConnections(16))
        server = await asyncio.get_running_loop().create_server(
            asyncio.Protocol, sock=listener, ssl=context
        )
        async with asyncio.timeout(60), server:
            port = listener.getsockname()[1]
            held = [await asyncio.open_connection(HOST, port) for _ in range(10)]
            for reader, _ in held[:6]:
                assert await reader.read() == b""
            assert not any(reader.at_eof() for reader, _ in held[6:])
            trusts = ssl.create_default_context(cafile=LOOPBACK_CERT)
            _, last = await asyncio.open_connection(HOST, port, ssl=trusts)
            for _, writer in (*held, (None, last)):
                writer.close()

    asyncio.run(main())
