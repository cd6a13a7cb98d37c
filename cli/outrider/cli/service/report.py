"""The report of `outrider validate` on one file: its services, their models, their problems."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outrider.cli.failures import Failure
from outrider.cli.models.kept import own_cache
from outrider.cli.service import validation
from outrider.cli.service.answers import answers_of, in_words, kept_of, with_pairings
from outrider.cli.service.validation import Checked
from outrider.cli.terminal import interrupts


@dataclass(frozen=True, slots=True)
class Report:
    """The findings of one file."""

    file: Path
    documents: Sequence[Checked]
    answers: Sequence[dict[str, Any]]
    """The models that are kept here, as `answers_of` returns them."""

    @property
    def errors(self) -> list[str]:
        """A line for each problem."""
        return [
            f"{self._place(one, problem.path)}: {problem}"
            for one in self.documents
            for problem in one.errors
        ]

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain values."""
        found = validation.as_json(self.documents)
        return {"file": str(self.file)} | found | {"models": list(self.answers)}

    def show(self) -> None:
        """Print warnings on stderr, valid services with their notes on stdout."""
        for one in self.documents:
            where = self._place(one)
            for warning in one.warnings:
                print(f"{where}: {warning}", file=sys.stderr)
            if one.errors:
                continue
            print(f"{where}: the service {one.name} is valid")
            own = [in_words(model) for model in self.answers if model["document"] == one.number]
            for note in (*one.notes, *own):
                print(f"{where}: {note}")

    def _place(self, one: Checked, path: str = "") -> str:
        if len(self.documents) > 1 and one.document is not None:
            return f"{self.file}: document {one.number}, line {one.line(path)}"
        return str(self.file)


def report(file: Path, text: str) -> Report:
    """Check the text of a file; paths in it are taken from the file's folder."""
    found = validation.check(text, str(file.absolute().parent))
    cache = own_cache()
    try:
        kept = interrupts.run(kept_of(found, cache))
        return Report(
            file, interrupts.run(with_pairings(found, kept, cache)), answers_of(found, kept)
        )
    except Failure as error:  # the YAML is right or wrong all the same
        print(f"{file}: what is kept of its models is not known: {error}", file=sys.stderr)
        return Report(file, found, [])
