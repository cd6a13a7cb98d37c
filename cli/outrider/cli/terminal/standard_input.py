"""Text from standard input, in place of a file or a prompt that is called `-`."""

from typing import BinaryIO

from outrider.cli.failures import BadInput

STDIN = "-"


def read_stdin(stream: BinaryIO) -> str:
    """Return the whole text of `stream`; raises `BadInput`."""
    try:
        text = stream.read().decode("utf-8")
    except UnicodeDecodeError:
        raise BadInput("standard input: not UTF-8 text") from None
    if not text.strip():
        raise BadInput("standard input: no text")
    return text
