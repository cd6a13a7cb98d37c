"""Who gets through to a server that knows its callers by certificates, also while these change."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from outrider.contract.settings import (
    AUTHORITIES,
    CERTIFICATE,
    KEY,
    PeerSettings,
    Role,
    SettingsError,
)
from outrider.operator.naming import OPERATOR_IDENTITY
from outrider.worker.host.peers import (
    EVERYBODY,
    AllowedCaller,
    PeerFiles,
    add_port,
    beyond_loopback,
    open_channel,
    server_credentials,
)
from tests.peer_folders import fill, name_of, new_authorities, peers_in

SECONDS = 60.0
NO_PROXY = (("grpc.enable_http_proxy", 0),)
SERVICE, ECHO = "test.Echo", "Echo"
OK, DENIED, NONE = (
    grpc.StatusCode.OK,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAVAILABLE,
)
TARGET, DRAFT = name_of(Role.TARGET), name_of(Role.DRAFT)


@contextlib.asynccontextmanager
async def echoing(peers: PeerSettings | None, admission: AllowedCaller) -> AsyncIterator[str]:
    """A server beyond loopback, at its address."""

    async def echo(incoming: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        await admission.check(context)
        async for payload in incoming:
            yield payload

    server = grpc.aio.server()
    methods: Any = {ECHO: grpc.stream_stream_rpc_method_handler(echo)}
    handler = grpc.method_handlers_generic_handler(SERVICE, methods)
    server.add_generic_rpc_handlers((handler,))
    port = add_port(server, "0.0.0.0:0", peers)
    await server.start()
    try:
        yield f"0.0.0.0:{port}"
    finally:
        await server.stop(None)


async def answer(address: str, peers: PeerSettings | None, name: str = DRAFT) -> grpc.StatusCode:
    """How a call fares that is made with these certificates."""
    async with open_channel(address, NO_PROXY, peers, name) as channel:
        return await status_of(channel)


async def status_of(channel: grpc.aio.Channel) -> grpc.StatusCode:
    """How a call on this channel ends."""
    # Without a stream of its own: a write that fails there would replace the server's status.
    called: Any = channel.unary_stream(f"/{SERVICE}/{ECHO}")
    call = called(b"?", timeout=SECONDS)
    with contextlib.suppress(grpc.aio.AioRpcError):
        async for _ in call:
            continue
    status: grpc.StatusCode = await call.code()
    return status


def test_a_server_takes_the_role_that_it_is_for_and_nobody_else(tmp_path: Path) -> None:
    authorities, strangers = new_authorities(), new_authorities()
    callers = {
        "target": (authorities, TARGET, OK),
        "draft": (authorities, DRAFT, DENIED),
        "of-another-service": (authorities, name_of(Role.TARGET, "other"), DENIED),
        "operator": (authorities, OPERATOR_IDENTITY, DENIED),
        "with-a-foreign-authority": (strangers, TARGET, NONE),
    }
    fill(tmp_path / "server", authorities, DRAFT)
    for caller, (signer, name, _) in callers.items():
        fill(tmp_path / caller, signer, name)

    async def ask() -> dict[str, grpc.StatusCode]:
        async with echoing(peers_in(tmp_path / "server"), AllowedCaller(TARGET)) as address:
            found = {one: await answer(address, peers_in(tmp_path / one)) for one in callers}
            return {**found, "plain": await answer(address, None)}

    expected = {caller: status for caller, (_, _, status) in callers.items()}
    assert asyncio.run(ask()) == {**expected, "plain": NONE}


def test_a_server_refuses_a_stranger_who_trusts_it(tmp_path: Path) -> None:
    """A caller who would take any server: whether it gets through is the server's word alone."""
    authorities = new_authorities()
    fill(tmp_path / "server", authorities, DRAFT)
    fill(tmp_path / "stranger", new_authorities(), TARGET)
    trusted = (tmp_path / "server" / AUTHORITIES).read_bytes()
    key, certificate = ((tmp_path / "stranger" / one).read_bytes() for one in (KEY, CERTIFICATE))

    async def ask(*own: bytes) -> grpc.StatusCode:
        credentials = grpc.ssl_channel_credentials(trusted, *own)
        named = (*NO_PROXY, ("grpc.ssl_target_name_override", DRAFT))
        async with (
            echoing(peers_in(tmp_path / "server"), EVERYBODY) as address,
            grpc.aio.secure_channel(address, credentials, named) as channel,
        ):
            return await status_of(channel)

    assert asyncio.run(ask(key, certificate)) is NONE
    assert asyncio.run(ask()) is NONE


def test_a_caller_takes_only_the_server_that_it_wants(tmp_path: Path) -> None:
    authorities = new_authorities()
    for name in (TARGET, DRAFT):
        fill(tmp_path / name, authorities, name)

    async def ask() -> list[grpc.StatusCode]:
        async with echoing(peers_in(tmp_path / DRAFT), EVERYBODY) as address:
            own = peers_in(tmp_path / TARGET)
            wanted = (DRAFT, TARGET, name_of(Role.DRAFT, "other"))
            return [await answer(address, own, name) for name in wanted]

    assert asyncio.run(ask()) == [OK, NONE, NONE]


def test_a_new_certificate_counts_for_new_connections_and_ends_no_stream(tmp_path: Path) -> None:
    """Authorities change altogether, which no rotation does: what counts is seen by that."""
    before, after = new_authorities(), new_authorities()
    for who, signer, name in (
        ("server", before, DRAFT),
        ("old", before, TARGET),
        ("new", after, TARGET),
    ):
        fill(tmp_path / who, signer, name)

    async def rotate() -> None:
        old, new = peers_in(tmp_path / "old"), peers_in(tmp_path / "new")
        async with (
            echoing(peers_in(tmp_path / "server"), AllowedCaller(TARGET)) as address,
            open_channel(address, NO_PROXY, old, DRAFT) as channel,
        ):
            stream: Any = channel.stream_stream(f"/{SERVICE}/{ECHO}")(timeout=SECONDS)
            await stream.write(b"1")
            assert await stream.read() == b"1"
            assert await answer(address, new) is NONE
            fill(tmp_path / "server", after, DRAFT)
            assert await answer(address, new) is OK
            assert await answer(address, old) is NONE
            await stream.write(b"2")
            assert await stream.read() == b"2"
            (tmp_path / "server" / KEY).resolve().unlink()  # what cannot be read changes nothing
            assert await answer(address, new) is OK

    asyncio.run(rotate())


@pytest.mark.parametrize("missing", ["tls.crt", "tls.key", "ca.crt"])
def test_certificates_that_cannot_be_read_are_named_by_their_setting(
    tmp_path: Path, missing: str
) -> None:
    fill(tmp_path / "mine", new_authorities(), TARGET)
    (tmp_path / "mine" / missing).resolve().unlink()
    with pytest.raises(SettingsError, match=r"^settings\.peers\.folder: .*mine: "):
        server_credentials(peers_in(tmp_path / "mine"))


def test_a_key_of_another_certificate_is_refused_at_the_start(tmp_path: Path) -> None:
    for one in ("mine", "other"):
        fill(tmp_path / one, new_authorities(), TARGET)
    (tmp_path / "mine" / KEY).resolve().write_bytes((tmp_path / "other" / KEY).read_bytes())
    with pytest.raises(SettingsError, match=r"^settings\.peers\.folder: "):
        server_credentials(peers_in(tmp_path / "mine"))


def test_nothing_is_guarded_on_loopback_and_no_key_is_ever_shown(tmp_path: Path) -> None:
    fill(tmp_path / "mine", new_authorities(), TARGET)
    peers = peers_in(tmp_path / "mine")
    assert beyond_loopback(peers, "127.0.0.1:1") is None
    assert beyond_loopback(peers, "draft.example:1") is peers
    files = PeerFiles.read(peers.folder)
    assert b"PRIVATE KEY" in files.key
    assert "PRIVATE" not in repr(files)
