"""How long stages took last time."""

from pathlib import Path

from outrider.cli.terminal.stopwatch import FILE, MOST, Stopwatch


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def took(folder: Path, subject: str, seconds: float, *, writes: bool = True) -> None:
    """Let a stage of a subject take so long."""
    clock = Clock()
    watch = Stopwatch(subject, folder, clock)
    watch.begin("target", "loading")
    clock.now = seconds
    watch.end("target")
    if writes:
        watch.write()


def last(folder: Path, subject: str) -> float:
    return Stopwatch(subject, folder).begin("target", "loading")


def test_each_subject_has_its_own_seconds_and_the_latest_count(tmp_path: Path) -> None:
    took(tmp_path, "one", 7.0)
    took(tmp_path, "other", 60.0)
    took(tmp_path, "one", 3.0)
    assert (last(tmp_path, "one"), last(tmp_path, "other")) == (3.0, 60.0)


def test_a_start_that_went_wrong_leaves_nothing(tmp_path: Path) -> None:
    took(tmp_path, "one", 7.0)
    took(tmp_path, "one", 1.0, writes=False)
    assert last(tmp_path, "one") == 7.0


def test_a_stage_ends_where_the_next_begins(tmp_path: Path) -> None:
    clock = Clock()
    watch = Stopwatch("one", tmp_path, clock)
    watch.begin("target", "loading")
    clock.now = 5.0
    watch.begin("target", "linking")
    clock.now = 6.0
    watch.end("target")
    watch.write()
    assert last(tmp_path, "one") == 5.0
    assert Stopwatch("one", tmp_path).begin("target", "linking") == 1.0


def test_a_file_that_cannot_be_read_tells_nothing_and_is_written_anew(tmp_path: Path) -> None:
    for text in ("", "[1]", '{"one target: loading": "long"}'):
        (tmp_path / FILE).write_text(text)
        assert last(tmp_path, "one") == 0.0
    took(tmp_path, "one", 7.0)
    assert last(tmp_path, "one") == 7.0


def test_the_file_keeps_the_latest_stages_alone(tmp_path: Path) -> None:
    for number in range(MOST + 1):
        took(tmp_path, str(number), 2.0)
    assert last(tmp_path, "0") == 0.0
    assert last(tmp_path, str(MOST)) == 2.0


def test_a_file_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    took(tmp_path, "one", 7.0)
    assert last(tmp_path, "one") == 0.0
    (tmp_path / "file").touch()
    took(tmp_path / "file", "one", 7.0)
