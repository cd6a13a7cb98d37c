"""Downloads that are cut, or that do not come alone: what is there is used, and nothing else."""

import hashlib
import re
from pathlib import Path

import pytest

from tests.downloads import CHUNK, SIZE, WEIGHTS, begins, large, resolved, started
from tests.fake_hub import hub_of


@pytest.mark.parametrize("is_reset", [False, True])
def test_a_connection_that_is_lost_is_gone_on_with(tmp_path: Path, is_reset: bool) -> None:
    model = large(tmp_path / "tiny")
    with hub_of(model, "org/tiny", cuts=[2 * CHUNK - 1], is_reset=is_reset) as hub:
        found, told = resolved("hf://org/tiny", hub.endpoint, tmp_path / "hub")
    assert (Path(found) / WEIGHTS).read_bytes() == (hub.folder / WEIGHTS).read_bytes()
    assert begins(hub) == [0, CHUNK]
    assert told[-1][1] == told[-1][2]


def write_part(model: Path, cache: Path, count: int) -> Path:
    """Leave so many bytes as the part of a model's weights that an earlier download fetched."""
    etag = hashlib.sha256((model / WEIGHTS).read_bytes()).hexdigest()
    part = cache / "hub" / "models--org--tiny" / "blobs" / f"{etag}.incomplete"
    part.parent.mkdir(parents=True)
    part.write_bytes(bytes(count))
    return part


def test_a_part_that_is_not_of_the_file_is_found_out_and_removed(tmp_path: Path) -> None:
    cache, model = tmp_path / "hub", large(tmp_path / "tiny")
    part = write_part(model, cache, CHUNK)
    with hub_of(model, "org/tiny") as hub:
        refused, _ = resolved("hf://org/tiny", hub.endpoint, cache)
        assert f"{WEIGHTS} was damaged where it was cut, and is removed; pull again" in refused
        assert not part.exists()
        found, _ = resolved("hf://org/tiny", hub.endpoint, cache)
    assert (Path(found) / WEIGHTS).read_bytes() == (model / WEIGHTS).read_bytes()
    assert begins(hub) == [CHUNK, 0]


def test_a_part_that_is_longer_than_its_file_is_begun_anew(tmp_path: Path) -> None:
    cache, model = tmp_path / "hub", large(tmp_path / "tiny")
    write_part(model, cache, SIZE + 1)
    with hub_of(model, "org/tiny") as hub:
        found, _ = resolved("hf://org/tiny", hub.endpoint, cache)
    assert (Path(found) / WEIGHTS).read_bytes() == (model / WEIGHTS).read_bytes()
    assert begins(hub) == [0]


def test_a_disk_that_fills_up_meanwhile_is_named_and_the_next_download_goes_on(
    tmp_path: Path,
) -> None:
    cache = tmp_path / "hub"
    with hub_of(large(tmp_path / "tiny"), "org/tiny") as hub:
        refused, _ = resolved("hf://org/tiny", hub.endpoint, cache, f"most={CHUNK + CHUNK // 2}")
        found, _ = resolved("hf://org/tiny", hub.endpoint, cache)
    assert "File too large; HF_HUB_CACHE, HF_HOME or XDG_CACHE_HOME puts" in refused
    assert re.search(r"; 1\d\.\d of 26\.\d MB are there, and the next pull goes on with ", refused)
    assert (Path(found) / WEIGHTS).read_bytes() == (hub.folder / WEIGHTS).read_bytes()
    assert begins(hub)[-1] >= CHUNK


def test_two_downloads_at_once_fetch_each_byte_once(tmp_path: Path) -> None:
    with hub_of(large(tmp_path / "tiny"), "org/tiny") as hub:
        both = [started("hf://org/tiny", hub.endpoint, tmp_path / "hub") for _ in range(2)]
        found = {one.communicate()[0].splitlines()[-1] for one in both}
    assert len(found) == 1
    assert begins(hub) == [0]
