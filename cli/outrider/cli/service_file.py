"""Reads the YAML file of a service for the commands that take `-f`.

What may be in it is `outrider.operator.spec`'s.
"""

from pathlib import Path

from outrider.cli.failures import BadInput
from outrider.operator.spec import SpecError, SpeculativeService, load


def read_service(file: Path) -> SpeculativeService:
    """The service in `file`, relative `file://` URIs taken from its folder; raises `BadInput`."""
    try:
        service = load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadInput(f"{file}: not UTF-8 text") from None
    except SpecError as error:
        raise BadInput("\n".join(f"{file}: {line}" for line in str(error).splitlines())) from None
    return service.at_folder(str(file.absolute().parent))
