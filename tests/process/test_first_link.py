"""A new target says that it is ready once a draft helps it, and answers before all the same."""

import urllib.error
import urllib.request

from outrider.contract.settings import PolicySettings, Role
from tests.ports import free_port
from tests.process import workers
from tests.process.conftest import Folders
from tests.process.workers import Worker, answer, wait_until


def readyz(worker: Worker) -> str:
    try:
        with urllib.request.urlopen(f"{worker.url}/readyz", timeout=30) as found:
            return str(found.read().decode()).strip()
    except urllib.error.HTTPError as error:
        return error.read().decode().strip()


def test_a_target_that_starts_with_drafts_is_ready_with_its_first_link(folders: Folders) -> None:
    draft = folders.settings(Role.DRAFT)
    policy = PolicySettings(version=3, drafts=(draft.listen,))
    settings = folders.settings(Role.TARGET, policy=policy, link_seconds=3600)
    with workers.started(settings, folders.logs) as target:
        assert readyz(target) == "not ready: it waits for its first draft"
        assert len(answer(target, 4).tokens) == 4
        with workers.started(draft, folders.logs):
            wait_until(lambda: readyz(target) == "ready", workers.START_SECONDS, "it is ready")
        assert readyz(target) == "ready", "a link that is lost later changes nothing"


def test_without_a_wish_to_wait_it_is_ready_at_once(folders: Folders) -> None:
    policy = PolicySettings(drafts=(f"127.0.0.1:{free_port()}",))
    with workers.started(folders.settings(Role.TARGET, policy=policy), folders.logs) as target:
        wait_until(lambda: readyz(target) == "ready", workers.START_SECONDS, "it is ready")
