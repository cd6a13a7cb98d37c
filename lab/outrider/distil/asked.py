"""The prompts that a recipe names: read, counted, and told apart from others."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from outrider.distil.errors import BadRecipe
from outrider.distil.open_sets import OPEN_SETS
from outrider.distil.prompts import (
    HELD_OUT,
    MixedPrompts,
    PromptList,
    PromptSource,
    ReservedPrompts,
    SeparateHeldOut,
    check_count,
    digest,
    read_prompts,
)
from outrider.distil.recipe import Recipe
from outrider.distil.templates import BUNDLED, Templates


@dataclass(frozen=True, slots=True)
class Asked:
    """Where questions come from, and what is said of it."""

    source: PromptSource
    held_out: int
    """Chats, the first, that are tested on."""
    described: list[dict[str, Any]]
    digest: str

    @classmethod
    def of(cls, recipe: Recipe, can_ask: bool) -> Self:
        """Read all prompts; raises `BadRecipe`. `can_ask`: the target can write a user's turn."""
        tested = None if recipe.test_prompts is None else read_prompts(recipe.test_prompts)
        if tested is not None and not tested:
            raise BadRecipe(f"prompts {recipe.test_prompts}: there is none")
        apart = -(-HELD_OUT // len(recipe.prompts)) if tested is None else 0
        found = {
            name: _source(
                name, recipe.seed, apart * recipe.prompts.count(name), can_ask, tested or ()
            )
            for name in recipe.prompts
        }
        sources, facts, marks = zip(*[found[name] for name in recipe.prompts], strict=True)
        described = [{"name": name} | one for name, one in zip(recipe.prompts, facts, strict=True)]
        source: PromptSource = MixedPrompts(sources)
        if tested is None:
            return cls(ReservedPrompts(source, HELD_OUT), HELD_OUT, described, digest(marks))
        described.append({"name": f"{recipe.test_prompts} (to test on)"} | _listed(tested))
        source = ReservedPrompts(SeparateHeldOut(tested, source), len(tested))
        return cls(source, len(tested), described, digest([*marks, digest(tested)]))


def _source(
    name: str, seed: int, held_out: int, can_ask: bool, tested: Sequence[str]
) -> tuple[PromptSource, dict[str, Any], str]:
    """Return a source without prompts to test on, what is said of it, and what tells it apart."""
    if name in BUNDLED:
        words = "questions from templates" + (", or written by the target" if can_ask else "")
        facts = {"prompts": words, "licence": "Apache-2.0"}
        mark = f"{template_digest(BUNDLED[name])} {can_ask}"
        return Templates(seed, BUNDLED[name], whole=not can_ask), facts, mark
    texts, licence = _texts(name)
    texts = [text for text in texts if text not in set(tested)]
    if not texts:
        raise BadRecipe(f"prompts {name}: none is left to train on")
    check_count(len(texts), held_out, f"prompts {name}")
    return PromptList(texts, seed, held_out), _listed(texts, licence), digest(texts)


def template_digest(folder: Path) -> str:
    """Return what tells the texts of a bundled set apart from those of another release."""
    return digest([file.read_text(encoding="utf-8") for file in sorted(folder.rglob("*.txt"))])


def _texts(name: str) -> tuple[list[str], str]:
    """Return the prompts of a set or a file, and their licence."""
    if name in OPEN_SETS:
        return OPEN_SETS[name].prompts(), OPEN_SETS[name].licence
    if not Path(name).exists():
        allowed = ", ".join([*BUNDLED, *OPEN_SETS])
        raise BadRecipe(f"prompts {name}: no such file; allowed: a file, or one of {allowed}")
    return read_prompts(Path(name)), "of whoever wrote the file"


def _listed(texts: Sequence[str], licence: str = "of whoever wrote the file") -> dict[str, Any]:
    return {"prompts": f"{len(texts):,} prompts", "licence": licence}
