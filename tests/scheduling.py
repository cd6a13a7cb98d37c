"""Which tests of a run go to one pytest process."""

from xdist.scheduler import LoadScopeScheduling

from tests import parts


class Groups(LoadScopeScheduling):
    """All tests of a file, or of the files of a group of `parts.toml`, go to one process.

    As `--dist loadgroup` does by marks, which xdist 3.8 does not see in pytest 9.2.
    """

    def _split_scope(self, nodeid: str) -> str:
        return parts.group(nodeid.partition("::")[0])
