"""Runs programs the way a user would, and leaves nothing behind.

Every process started here has a marker in its environment, so that ranks are found even after mpiexec has ended and
init has adopted them. A run that does not end is a failure, and the failure shows what the run printed.
"""

import copy
import os
import re
import signal
import subprocess
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rank_files import RankFiles

TOP = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("UNIMEM_BUILD", TOP / "build")).resolve()
VENV = TOP / ".venv"
PROGRAMS = Path(__file__).resolve().parent / "programs"
MARKER = "UNIMEM_TEST_MARKER"

# If a developer's shell sets these variables, they would change what is tested.
INHERITED_NOT = ("FI_PROVIDER", "FI_PROVIDER_PATH", "MPIR_CVAR_NOLOCAL", "MPIR_CVAR_CH4_NETMOD", "FI_LOG_LEVEL")


@dataclass(frozen=True)
class Run:
    """Status and output of a finished program."""

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


def sent_by_machine(run: Run) -> Counter[str]:
    """Messages that all ranks sent, by machine."""
    sent: Counter[str] = Counter()
    for machine, count in re.findall(r"^unimem: stats: .* machine=(\w+) sent=(\d+)", run.err, re.MULTILINE):
        sent[machine] += int(count)
    return sent


class Launcher:
    """Starts programs in a clean environment, over one provider by default."""

    def __init__(self, provider: str) -> None:
        self.provider = provider
        self.marker = uuid.uuid4().hex
        self.under: Sequence[str] = ()
        self.outputs = tempfile.TemporaryDirectory(prefix="unimem-ranks-", ignore_cleanup_errors=True)
        os.chmod(self.outputs.name, 0o755)  # ranks may be another user's

    def inside(self, wrapper: Sequence[str]) -> "Launcher":
        """A launcher that starts everything under this command. Its processes count as this launcher's, too."""
        other = copy.copy(self)
        other.under = wrapper
        return other

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
    def mpi_command(ranks: int, command: Sequence[str | Path] = ()) -> list[str]:
        return [str(BUILD / "unimem"), "run", "--", str(VENV / "bin" / "mpiexec"), "-n", str(ranks), *map(str, command)]

    def start(self, command: Sequence[str | Path], env: Mapping[str, str], **popen: object) -> subprocess.Popen[str]:
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(  # type: ignore[call-overload]
            [*self.under, *map(str, command)],
            env=dict(env),
            text=True,
            errors="replace",
            start_new_session=True,
            **(streams | popen),
        )

    def finish(self, process: subprocess.Popen[str], timeout: float, files: RankFiles | None = None) -> Run:
        """Waits for the end. The output is that of the process itself, then that of the ranks, from their files."""
        command = [str(part) for part in process.args]  # type: ignore[union-attr]
        ended = True
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            ended = False
            self.kill_leftovers()
            process.kill()
            out, err = process.communicate(timeout=30)
        if files:
            out, err = (out or "") + files.text("out"), (err or "") + files.text("err")
        run = Run(command, process.returncode if ended else -signal.SIGKILL, out, err)
        assert ended, f"did not end within {timeout:g} s and was killed:\n{run}"
        return run

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

    def start_ranks(
        self,
        launch: Sequence[str | Path],
        program: Sequence[str | Path],
        env: Mapping[str, str],
        more: Sequence[Sequence[str | Path]] = (),
        **popen: object,
    ) -> "Job":
        """Starts a launcher with its options and the program of its ranks; each program in `more` adds one rank."""
        files = RankFiles(Path(tempfile.mkdtemp(dir=self.outputs.name)))
        command = [*map(str, launch), *files.wrap(program)]
        for other in more:
            command += [":", "-n", "1", *files.wrap(other)]
        return Job(self, self.start(command, env, **popen), files)

    def run_ranks(
        self,
        launch: Sequence[str | Path],
        program: Sequence[str | Path],
        provider: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 120,
        **how: object,
    ) -> Run:
        return self.start_ranks(launch, program, self.environment(provider, env), **how).finish(timeout)  # type: ignore[arg-type]

    def mpi(self, ranks: int, program: Sequence[str | Path], **how: object) -> Run:
        """Runs ranks of .venv's MPICH."""
        return self.run_ranks(self.mpi_command(ranks), program, **how)  # type: ignore[arg-type]

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
        """Waits until no process is left, at most so many seconds; returns those that are left."""
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


@dataclass(frozen=True)
class Job:
    """Ranks under their launcher, and where their output goes."""

    launcher: Launcher
    process: subprocess.Popen[str]
    files: RankFiles

    def finish(self, timeout: float) -> Run:
        return self.launcher.finish(self.process, timeout, self.files)

    def wait_for(self, stream: str, pattern: str, count: int, seconds: float = 60) -> list[re.Match[str]]:
        """Waits for `count` matches of the pattern in what the ranks print on "out" or "err"; returns the matches."""
        end = time.monotonic() + seconds
        while True:
            ended = self.process.poll() is not None
            found = [m for text in self.files.read(stream) for m in re.finditer(pattern, text, re.MULTILINE)]
            if len(found) >= count:
                return found
            if ended or time.monotonic() > end:
                break
            time.sleep(0.02)
        self.launcher.kill_leftovers()
        raise AssertionError(f"{len(found)} of {count} times {pattern!r}:\n{self.finish(30)}")


def describe(pid: int) -> str:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        command = "(gone meanwhile)"
    return f"{pid}: {command}"


SHARED_FILES = Path("/dev/shm")


def shared_files(prefix: str) -> set[Path]:
    """Files in /dev/shm whose name contains the prefix."""
    return {entry for entry in SHARED_FILES.iterdir() if prefix in entry.name} if SHARED_FILES.is_dir() else set()


def remove_unmapped(files: set[Path]) -> None:
    """Removes the files that no living process maps.

    MPICH itself makes files mpich_shm_* in MPI_Init, whatever the provider, and leaves them when it is killed. These
    tests are not about them, but they should not pile up on the machine.
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
