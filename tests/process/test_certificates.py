"""A target and a draft as a pod has them: beyond loopback, known to each other by certificates."""

import dataclasses
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from outrider.client import Client, ClientError, PolicySettings, Unavailable
from outrider.client.channel import ClientCertificate
from outrider.contract.settings import Role, WorkerSettings
from outrider.operator.certificates.authority import Authorities
from outrider.operator.naming import OPERATOR_IDENTITY
from outrider.worker.host.peers import PeerFiles
from tests.peer_folders import fill, name_of, new_authorities, peers_in
from tests.ports import free_port
from tests.process import workers
from tests.process.conftest import Folders
from tests.process.workers import PROMPT, START_SECONDS, Worker, up_links, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers need Linux here")


@dataclass
class Pair:
    """Both workers, with clients that have the operator's certificate."""

    target: Worker
    draft: Worker
    authorities: Authorities
    folder: Path


def operators_client(folder: Path, settings: WorkerSettings) -> Client:
    """A client of a worker's Control with the certificate in a folder."""
    files = PeerFiles.read(str(folder))
    return Client(
        settings.control_listen,
        tls=files.authorities,
        tls_name=name_of(settings.role),
        certificate=ClientCertificate(files.certificate, files.key),
    )


@pytest.fixture(scope="module")
def pair(folders: Folders, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    base, authorities = tmp_path_factory.mktemp("certificates"), new_authorities()
    fill(base / "operator", authorities, OPERATOR_IDENTITY)
    started: dict[Role, Worker] = {}
    try:
        for role in (Role.DRAFT, Role.TARGET):
            fill(base / role, authorities, name_of(role))
            settings = dataclasses.replace(
                folders.settings(role),
                listen=f"0.0.0.0:{free_port()}",
                control_listen=f"0.0.0.0:{free_port()}",
                guarded=True,
                peers=peers_in(base / role),
            )
            worker = workers.launch(settings, folders.logs)
            worker.client.close()
            worker.client = operators_client(base / "operator", settings)
            started[role] = worker
        for worker in started.values():
            worker.until(lambda state: state.ready)
        yield Pair(started[Role.TARGET], started[Role.DRAFT], authorities, base)
    finally:
        for worker in started.values():
            workers.stop(worker)


def test_a_link_comes_up_and_again_after_its_draft_has_another_certificate(pair: Pair) -> None:
    workers.pair_with(pair.target, pair.draft.address)
    with Client(pair.target.address, timeout=workers.ANSWER_SECONDS) as client:
        assert client.complete(PROMPT, max_tokens=8, ignore_end=True).token_ids
        for role in Role:
            fill(pair.folder / role, pair.authorities, name_of(role))
        assert client.complete(PROMPT, max_tokens=8, ignore_end=True).token_ids
    assert up_links(pair.target.client.state()) == [pair.draft.address]
    wait_until(lambda: links_made(pair) > 0, START_SECONDS, "the first link is in the log")
    workers.pair_with(pair.target)
    pair.target.until(lambda state: not state.links)
    made = links_made(pair)
    workers.pair_with(pair.target, pair.draft.address)
    wait_until(lambda: links_made(pair) > made, START_SECONDS, "another link")


def links_made(pair: Pair) -> int:
    """Links that came up in the target's life."""
    return pair.target.log.read_text().count("the link to the draft at")


def test_control_is_the_operators_and_no_peers(pair: Pair) -> None:
    policy = PolicySettings(version=10_000, drafts=("attacker.example:1",))
    before = pair.target.client.state().policy
    for role in Role:
        with operators_client(pair.folder / role, pair.target.settings) as peer:
            with pytest.raises(ClientError) as refusal:
                peer.set_policy(policy, timeout=30)
            assert refusal.value.status is grpc.StatusCode.PERMISSION_DENIED
    with Client(pair.target.settings.control_listen) as stranger, pytest.raises(Unavailable):
        stranger.set_policy(policy, timeout=30)
    with Client(pair.target.address) as asking:
        assert asking.models()
        with pytest.raises(ClientError) as refusal:
            asking.set_policy(policy, timeout=30)
        assert refusal.value.status is grpc.StatusCode.UNIMPLEMENTED
    assert pair.target.client.state().policy == before


def test_no_private_key_is_in_a_log_or_an_argument(pair: Pair) -> None:
    keys = [PeerFiles.read(str(folder)).key for folder in pair.folder.iterdir()]
    lines = [key.splitlines()[1] for key in keys]
    for worker in (pair.target, pair.draft):
        ids = [worker.process.pid, *worker.children()]
        shown = worker.log.read_bytes()
        for file in ("cmdline", "environ"):
            shown += b"".join(Path(f"/proc/{one}/{file}").read_bytes() for one in ids)
        assert not [line for line in lines if line in shown]
