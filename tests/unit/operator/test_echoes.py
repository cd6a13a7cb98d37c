"""A write is seen by the next pass, whether or not the watches have told of it."""

from outrider.operator.echoes import Echoes


def one(name: str, version: str) -> dict[str, object]:
    return {"kind": "ConfigMap", "metadata": {"name": name, "resourceVersion": version}}


def versions(found: list) -> dict[str, str]:  # type: ignore[type-arg]
    return {o["metadata"]["name"]: o["metadata"]["resourceVersion"] for o in found}


def test_a_write_is_shown_until_the_watches_show_it_or_a_later_one() -> None:
    echoes = Echoes()
    echoes.wrote(one("a", "1"), one("a", "5"), 0.0)
    assert versions(echoes.over([one("a", "1"), one("b", "2")], 1.0)) == {"a": "5", "b": "2"}
    assert versions(echoes.over([one("a", "7")], 1.0)) == {"a": "7"}
    assert versions(echoes.over([one("a", "1")], 1.0)) == {"a": "1"}  # forgotten for good


def test_what_was_made_is_there_before_the_watches_know() -> None:
    echoes = Echoes()
    echoes.wrote(None, one("new", "3"), 0.0)
    assert versions(echoes.over([], 1.0)) == {"new": "3"}
    assert versions(echoes.over([one("new", "3")], 1.0)) == {"new": "3"}
    assert versions(echoes.over([], 1.0)) == {}


def test_the_first_that_is_shown_stays_first() -> None:
    echoes = Echoes()
    echoes.wrote(None, one("new", "3"), 0.0)
    echoes.wrote(one("service", "1"), one("service", "2"), 0.0)
    assert next(iter(versions(echoes.over([one("service", "1"), one("a", "1")], 1.0)))) == "service"


def test_nothing_of_a_deleted_object_is_awaited() -> None:
    echoes = Echoes()
    echoes.wrote(None, one("a", "5"), 0.0)
    echoes.gone(one("a", "5"))
    assert echoes.over([], 1.0) == []


def test_a_write_that_was_undone_before_it_was_shown_is_not_believed_for_ever() -> None:
    echoes = Echoes()
    echoes.wrote(None, one("a", "5"), 0.0)
    assert versions(echoes.over([], 1.0)) == {"a": "5"}
    assert echoes.over([], 60.0) == []
