"""Reasons for which a Hugging Face repository cannot be had, each in one line that says what helps.

Knows what `huggingface_hub` raises; leaves the model's name to `source`.
"""

import errno
import re

from outrider.contract.files import CACHES_VARIABLE

LOCAL_SOURCES = "a folder or a .gguf file"
"""What can be named where nothing can be fetched."""
ELSEWHERE = f"HF_HUB_CACHE, HF_HOME or {CACHES_VARIABLE} puts Hugging Face's cache elsewhere"
UNAUTHORIZED = 401
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
ERRNO = re.compile(r"^\[Errno -?\d+\] ")


def reason(error: Exception, repository: str, revision: str | None) -> str:
    """Say why a repository could not be had."""
    from huggingface_hub import constants, errors

    if isinstance(error, errors.LocalEntryNotFoundError) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    page = f"{constants.ENDPOINT}/{repository}"
    match error:
        case errors.OfflineModeIsEnabled():
            return (
                "HF_HUB_OFFLINE is set and it is not, or not whole, in Hugging Face's cache; unset "
                f"that, or name {LOCAL_SOURCES}"
            )
        case errors.GatedRepoError():
            return (
                f"it is open only to those who accepted its terms: accept them at {page} and set "
                "HF_TOKEN to a token of that account"
            )
        case errors.RepositoryNotFoundError():
            return (
                f"there is no {page}, or it is private; check the name, or set HF_TOKEN to a token "
                "that may read it"
            )
        case errors.RevisionNotFoundError():
            return f"{page} has no revision {revision!r}; allowed: a branch, a tag or a commit"
        case errors.HfHubHTTPError() if error.response.status_code == UNAUTHORIZED:
            return f"the token of HF_TOKEN or `hf auth login` is not valid at {constants.ENDPOINT}"
        case OSError(errno=number) if number in FULL:
            words = _words(error)
            return words if ELSEWHERE in words else f"{words}; {ELSEWHERE}"
    return _unreachable(error) if is_of_the_network(error) else " ".join(str(error).split())


def http_error() -> type[Exception]:
    """Return the class of what goes wrong on the way, in the HTTP library of this release."""
    from huggingface_hub import errors

    found: type[Exception] = errors.HTTPError  # type: ignore[attr-defined]
    return found


def is_of_the_network(error: Exception) -> bool:
    """True where nothing answered, or an answer was cut."""
    from huggingface_hub.errors import HfHubHTTPError

    return isinstance(error, http_error()) and not isinstance(error, HfHubHTTPError)


def _unreachable(error: Exception) -> str:
    from huggingface_hub import constants

    return (
        f"{constants.ENDPOINT} could not be reached ({_words(error)}); set HF_ENDPOINT to a mirror "
        f"or HTTPS_PROXY to a proxy, or name {LOCAL_SOURCES}"
    )


def _words(error: Exception) -> str:
    return ERRNO.sub("", str(error)) or "no answer"
