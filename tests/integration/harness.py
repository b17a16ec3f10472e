"""Runs programs the way a user would, and leaves nothing behind.

Every process started here carries a marker in its environment, so that ranks are found again even after mpiexec is
gone and they were adopted by init. A run that does not end is a failure that shows what it printed.
"""

import os
import re
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("UNIMEM_BUILD", TOP / "build"))
VENV = TOP / ".venv"
PROGRAMS = Path(__file__).resolve().parent / "programs"
MARKER = "UNIMEM_TEST_MARKER"

# Set by a developer's shell, these would change what is tested.
INHERITED_NOT = ("FI_PROVIDER", "FI_PROVIDER_PATH", "MPIR_CVAR_NOLOCAL", "MPIR_CVAR_CH4_NETMOD", "FI_LOG_LEVEL")


@dataclass(frozen=True)
class Run:
    """What a finished program left."""

    command: Sequence[str]
    status: int
    out: str
    err: str

    def __str__(self) -> str:
        return (
            f"{' '.join(self.command)}\nexit status {self.status}\n"
            f"--- stdout (end)\n{self.out[-3000:]}\n--- stderr (end)\n{self.err[-3000:]}"
        )

    def succeeded(self) -> "Run":
        assert self.status == 0, str(self)
        return self


def stats_lines(run: Run) -> list[dict[str, int]]:
    """unimem: stats: pid=1 sent=2 ... (FI_UNIMEM_STATS=1: one line per endpoint)"""
    lines = [line for line in run.err.splitlines() if "unimem: stats:" in line]
    return [{key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", line)} for line in lines]


class Launcher:
    """Starts programs in a clean environment, over one provider by default."""

    def __init__(self, provider: str) -> None:
        self.provider = provider
        self.marker = uuid.uuid4().hex

    def environment(self, provider: str | None = None, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment in which `unimem run` is called: for unimem the user sets nothing at all."""
        env = {
            name: value
            for name, value in os.environ.items()
            if name not in INHERITED_NOT and not name.startswith("FI_UNIMEM_")
        }
        provider = provider or self.provider
        if provider != "unimem":
            env["FI_PROVIDER"] = provider
        env[MARKER] = self.marker
        env.update(extra or {})
        return env

    @staticmethod
    def mpi_command(ranks: int, command: Sequence[str | Path]) -> list[str]:
        return [str(BUILD / "unimem"), "run", "--", str(VENV / "bin" / "mpiexec"), "-n", str(ranks), *map(str, command)]

    def start(self, command: Sequence[str | Path], env: Mapping[str, str], **popen: object) -> subprocess.Popen[str]:
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(  # type: ignore[call-overload]
            [str(part) for part in command],
            env=dict(env),
            text=True,
            errors="replace",
            start_new_session=True,
            **(streams | popen),
        )

    def finish(self, process: subprocess.Popen[str], timeout: float) -> Run:
        command = [str(part) for part in process.args]  # type: ignore[union-attr]
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.kill_leftovers()
            process.kill()
            out, err = process.communicate(timeout=30)
            run = Run(command, -signal.SIGKILL, out, err)
            raise AssertionError(f"did not end within {timeout:g} s and was killed:\n{run}") from None
        return Run(command, process.returncode, out, err)

    def run(
        self,
        command: Sequence[str | Path],
        provider: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 120,
        **popen: object,
    ) -> Run:
        process = self.start(command, self.environment(provider, env), **popen)
        return self.finish(process, timeout)

    def mpi(
        self,
        ranks: int,
        command: Sequence[str | Path],
        provider: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 120,
        **popen: object,
    ) -> Run:
        return self.run(self.mpi_command(ranks, command), provider, env, timeout, **popen)

    def processes(self) -> list[int]:
        """The living processes that this launcher started, and their descendants."""
        wanted = f"{MARKER}={self.marker}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue  # it ended, or belongs to somebody else
        return found

    def wait_until_gone(self, seconds: float) -> list[int]:
        """Those that are still there after that time."""
        end = time.monotonic() + seconds
        while (left := self.processes()) and time.monotonic() < end:
            time.sleep(0.05)
        return left

    def kill_leftovers(self) -> None:
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def describe(pid: int) -> str:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        command = "(gone meanwhile)"
    return f"{pid}: {command}"


SHARED_FILES = Path("/dev/shm")


def shared_files(prefix: str) -> set[Path]:
    """Files in /dev/shm whose name holds the prefix."""
    return {entry for entry in SHARED_FILES.iterdir() if prefix in entry.name} if SHARED_FILES.is_dir() else set()


def remove_unmapped(files: set[Path]) -> None:
    """Removes those that no living process maps.

    MPICH itself makes files mpich_shm_* in MPI_Init, whatever the provider, and leaves them when it is killed: they are
    not what these tests are about, and should not pile up on the machine.
    """
    if not files:
        return
    mapped = ""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            mapped += maps.read_text(errors="replace")
        except OSError:
            continue
    for file in files:
        if str(file) not in mapped:
            file.unlink(missing_ok=True)
