"""Text files that the user names.

What is in them is for those who parse it, whose modules take longer to import than a wrong name
needs to be told of.
"""

from pathlib import Path

from outrider.cli.failures import BadInput


def read_text(file: Path) -> str:
    """Return the text of a file; raises `BadInput`."""
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadInput(f"{file}: not UTF-8 text") from None
