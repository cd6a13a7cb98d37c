"""Text of files that the user names and of standard input, and JSON on stdout.

What is in it is for those who parse it, whose modules take longer to import than a wrong name needs
to be told of.
"""

import json
from pathlib import Path
from typing import Any, BinaryIO

from outrider.cli.failures import BadInput

STDIN = "-"
"""Name of standard input, in place of a file or a prompt."""


def read_text(file: Path) -> str:
    """Return the text of a file; raises `BadInput`."""
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadInput(f"{file}: not UTF-8 text") from None


def read_stdin(stream: BinaryIO) -> str:
    """Return the whole text of `stream`; raises `BadInput`."""
    try:
        text = stream.read().decode("utf-8")
    except UnicodeDecodeError:
        raise BadInput("standard input: not UTF-8 text") from None
    if not text.strip():
        raise BadInput("standard input: no text")
    return text


def print_json(value: dict[str, Any]) -> None:
    """Print one object on a line of stdout."""
    print(json.dumps(value, ensure_ascii=False, allow_nan=False), flush=True)
