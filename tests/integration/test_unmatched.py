"""Many sends before the first one is matched: no resource of the provider may run out where MPI promises progress."""

from collections.abc import Callable
from pathlib import Path

import pytest
from harness import Launcher
from other_mpi import OtherMpi

Program = Callable[[str], Path]
# Ranks, pattern, sends, bytes.
SHORT = [
    (2, "both", 65, 65536),
    (2, "reverse", 65, 65536),
    (2, "both", 3000, 65536),
    (2, "later", 100000, 8),
    (2, "probe", 20000, 8),
    (4, "synchronous", 2000, 8),
    (4, "windows", 500, 65536),
]
LONG = [
    (2, "both", 10000, 65536),
    (2, "reverse", 10000, 65536),
    (2, "later", 1000000, 8),
    (2, "probe", 1000000, 8),
    (4, "both", 10000, 65536),
    (4, "reverse", 10000, 65536),
    (4, "later", 1000000, 8),
    (4, "synchronous", 10000, 8),
    (4, "windows", 10000, 65536),
]
CASES = [*SHORT, *(pytest.param(*case, marks=pytest.mark.long) for case in LONG)]
# MPICH's own protocol for large messages, over libfabric messages that complete when they are matched.
PIPELINE = {"MPIR_CVAR_CH4_OFI_EAGER_THRESHOLD": "16384", "MPIR_CVAR_CH4_OFI_RNDV_PROTOCOL": "pipeline"}


def arguments(binary: Path, pattern: str, count: int, size: int) -> list[str | int | Path]:
    return [binary, pattern, count, size]


def said(ranks: int, pattern: str, count: int, size: int) -> str:
    return f"{pattern}: {count} sends of {size} bytes are right on {ranks} ranks\n"


@pytest.mark.parametrize(("ranks", "pattern", "count", "size"), CASES)
def test_mpich(launcher: Launcher, program: Program, ranks: int, pattern: str, count: int, size: int) -> None:
    command = arguments(program("unmatched.c"), pattern, count, size)
    assert launcher.mpi(ranks, command, timeout=300).succeeded().out == said(ranks, pattern, count, size)


@pytest.mark.parametrize(("ranks", "pattern", "count", "size"), CASES)
def test_openmpi5(openmpi5: OtherMpi, ranks: int, pattern: str, count: int, size: int) -> None:
    command = arguments(openmpi5.build("unmatched.c"), pattern, count, size)
    assert said(ranks, pattern, count, size) in openmpi5.run(ranks, command, timeout=300).succeeded().out


@pytest.mark.needs_impi
@pytest.mark.parametrize(("ranks", "pattern", "count", "size"), [case for case in SHORT if case[1] != "windows"])
def test_intel_mpi(impi: OtherMpi, ranks: int, pattern: str, count: int, size: int) -> None:
    command = arguments(impi.build("unmatched.c"), pattern, count, size)
    assert said(ranks, pattern, count, size) in impi.run(ranks, command, timeout=300).succeeded().out


def test_mpich_pipeline(launcher: Launcher, program: Program) -> None:
    command = arguments(program("unmatched.c"), "both", 50, 1 << 20)
    assert launcher.mpi(2, command, env=PIPELINE, timeout=120).succeeded().out == said(2, "both", 50, 1 << 20)


def test_a_small_bound_stops_no_correct_program(openmpi5: OtherMpi) -> None:
    """With the smallest FI_UNIMEM_UNEXPECTED_MEMORY, messages for which a program waits are still taken."""
    for pattern in ("both", "later", "probe"):
        command = arguments(openmpi5.build("unmatched.c"), pattern, 20000, 8)
        run = openmpi5.run(2, command, env={"FI_UNIMEM_UNEXPECTED_MEMORY": "65536"}, timeout=120)
        assert said(2, pattern, 20000, 8) in run.succeeded().out
