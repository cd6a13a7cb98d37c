"""Download of a repository: its files, the bytes that are told, and the words of refusals."""

import re
import socket
import threading
from pathlib import Path

import pytest

from tests.downloads import CHUNK, WEIGHTS, begins, cut_at_a_chunk, large, left_in, resolved
from tests.fake_hub import COMMIT, hub_of
from tests.tiny_models import write_tiny


def test_a_repository_is_fetched_once_and_its_bytes_are_told(tmp_path: Path) -> None:
    model = write_tiny(tmp_path / "tiny")
    (model / "README.md").write_text("not needed")
    needed = [file for file in model.iterdir() if file.name != "README.md"]
    total = sum(file.stat().st_size for file in needed)
    with hub_of(model, "org/tiny") as hub:
        found, told = resolved("hf://org/tiny", hub.endpoint, tmp_path / "hub")
        again, silent = resolved("hf://org/tiny", hub.endpoint, tmp_path / "hub")
    offline, _ = resolved("hf://org/tiny", hub.endpoint, tmp_path / "hub", offline="1")
    lost, _ = resolved("hf://org/tiny", hub.endpoint, tmp_path / "hub")
    assert found == again == offline == lost
    assert found.endswith(f"/snapshots/{COMMIT}")
    assert sorted(file.name for file in Path(found).iterdir()) == sorted(f.name for f in needed)
    assert {stage for stage, _, _ in told} == {"download"}
    assert told[0] == ("download", (model / "config.json").stat().st_size, total)
    assert told[-1] == ("download", total, total)
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
    assert silent == [], "nothing was fetched"
    assert sorted(name for name, _ in hub.bodies) == sorted(file.name for file in needed)


def test_a_revision_that_was_fetched_by_its_commit_is_named_when_it_is_asked_for(
    tmp_path: Path,
) -> None:
    with hub_of(write_tiny(tmp_path / "tiny"), "org/tiny") as hub:
        by_commit, _ = resolved(f"hf://org/tiny@{COMMIT}", hub.endpoint, tmp_path / "hub")
        bodies = len(hub.bodies)
        found, _ = resolved("hf://org/tiny", hub.endpoint, tmp_path / "hub")
        assert (found, len(hub.bodies)) == (by_commit, bodies)
    offline, _ = resolved("hf://org/tiny", hub.endpoint, tmp_path / "hub", offline="1")
    assert offline == by_commit


def test_a_killed_download_goes_on_where_it_was_cut(tmp_path: Path) -> None:
    cache = tmp_path / "hub"
    with hub_of(
        large(tmp_path / "tiny"), "org/tiny", cuts=[2 * CHUNK + 1], gone=threading.Event()
    ) as hub:
        cut_at_a_chunk(hub, cache)
        partial, _ = resolved("hf://org/tiny", hub.endpoint, cache, offline="1")
        found, told = resolved("hf://org/tiny", hub.endpoint, cache)
    assert partial.startswith("refused: ")
    assert "not whole" in partial
    assert (Path(found) / WEIGHTS).read_bytes() == (hub.folder / WEIGHTS).read_bytes()
    first, then = begins(hub)
    assert first == 0
    assert CHUNK <= then <= 2 * CHUNK
    assert told[0][1] >= CHUNK, "it is told what was there"
    assert not [name for name in left_in(cache) if "incomplete" in name]


def test_a_disk_without_room_is_named_before_anything_is_written(tmp_path: Path) -> None:
    model = write_tiny(tmp_path / "tiny")
    with hub_of(model, "org/tiny", claimed={WEIGHTS: 10**18}) as hub:
        found, told = resolved("hf://org/tiny", hub.endpoint, tmp_path / "hub")
    assert re.search(r"1,000,000,000,\d{3}\.\d MB are needed here and [\d,.]+ MB are free", found)
    assert all(word in found for word in ("HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"))
    assert (told, left_in(tmp_path / "hub"), hub.bodies) == ([], [], [])


def test_a_model_that_is_not_served_is_refused_before_its_weights_are_fetched(
    tmp_path: Path,
) -> None:
    with hub_of(write_tiny(tmp_path / "tiny"), "org/tiny") as hub:
        found, _ = resolved("hf://org/tiny", hub.endpoint, tmp_path / "hub", "refuse")
    assert found == "refused: model hf://org/tiny: not served: config.json"
    assert hub.bodies == [("config.json", 0)]


def test_a_repository_without_a_config_is_refused_before_anything_is_fetched(
    tmp_path: Path,
) -> None:
    model = write_tiny(tmp_path / "tiny")
    (model / "config.json").unlink()
    with hub_of(model, "org/tiny") as hub:
        found, _ = resolved("hf://org/tiny", hub.endpoint, tmp_path / "hub")
    assert found.startswith("refused: model hf://org/tiny: it has no config.json, ")
    assert hub.bodies == []


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("hf://org/other", "there is no {}/org/other, or it is private; check the name, or set HF"),
        ("hf://org/tiny@v9", "{}/org/tiny has no revision 'v9'; allowed: a branch, a tag or a"),
    ],
)
def test_a_repository_or_revision_that_is_not_there_is_named(
    tmp_path: Path, uri: str, words: str
) -> None:
    with hub_of(write_tiny(tmp_path / "tiny"), "org/tiny") as hub:
        found, _ = resolved(uri, hub.endpoint, tmp_path / "hub")
    assert found.startswith(f"refused: model {uri}: {words.format(hub.endpoint)}")
    assert "\n" not in found


def test_a_gated_repository_says_where_its_terms_are_accepted(tmp_path: Path) -> None:
    with hub_of(write_tiny(tmp_path / "tiny"), "org/tiny", is_gated=True) as hub:
        found, _ = resolved("hf://org/tiny", hub.endpoint, tmp_path / "hub")
    assert f"accept them at {hub.endpoint}/org/tiny and set HF_TOKEN" in found
    assert left_in(tmp_path / "hub") == []


def test_a_token_that_is_not_valid_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hub_of(write_tiny(tmp_path / "tiny"), "org/tiny", token="right") as hub:
        monkeypatch.setenv("HF_TOKEN", "wrong")
        refused, _ = resolved("hf://org/tiny", hub.endpoint, tmp_path / "hub")
        monkeypatch.setenv("HF_TOKEN", "right")
        found, _ = resolved("hf://org/tiny", hub.endpoint, tmp_path / "hub")
    assert f"the token of HF_TOKEN or `hf auth login` is not valid at {hub.endpoint}" in refused
    assert found.endswith(COMMIT)


def test_a_hub_that_cannot_be_reached_is_named_in_one_line_with_what_helps(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # and does not listen
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        found, _ = resolved("hf://org/tiny", endpoint, tmp_path / "hub")
    assert found.startswith(f"refused: model hf://org/tiny: {endpoint} ")
    assert all(word in found for word in ("Connection refused", "HF_ENDPOINT", "HTTPS_PROXY"))
    assert "\n" not in found


def test_a_hub_that_may_not_be_asked_is_no_hub_that_is_lost(tmp_path: Path) -> None:
    found, _ = resolved("hf://org/tiny", "http://127.0.0.1:1", tmp_path / "hub", offline="1")
    assert found.startswith("refused: model hf://org/tiny: HF_HUB_OFFLINE ")
    assert "HF_ENDPOINT" not in found
