"""A file for the stdout and one for the stderr of each rank.

mpiexec forwards the output of its ranks in whatever pieces it reads, so a line may contain pieces of two ranks. So each
rank writes into files of its own, which are read one after the other.
"""

from collections.abc import Sequence
from pathlib import Path

# The rank as MPICH and Intel MPI name it, or as Open MPI does.
SCRIPT = 'rank=${PMI_RANK:-${OMPI_COMM_WORLD_RANK:?"this launcher names no rank"}} && exec "$@" >"$0/$rank.out" 2>"$0/$rank.err"'


class RankFiles:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.chmod(0o1777)  # ranks may be another user's

    def wrap(self, program: Sequence[str | Path]) -> list[str]:
        """The command that the launcher starts in place of this program."""
        return ["/bin/sh", "-c", SCRIPT, str(self.folder), *map(str, program)]

    def read(self, stream: str) -> list[str]:
        """What each rank has printed so far on "out" or "err", in the order of the ranks."""
        files = sorted(self.folder.glob(f"*.{stream}"), key=lambda file: int(file.stem))
        return [file.read_text(errors="replace") for file in files]

    def text(self, stream: str) -> str:
        return "".join(self.read(stream))
