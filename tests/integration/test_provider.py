"""Unmodified MPICH finds the provider, uses it as intended, and the messages really go through it."""

import re
from collections.abc import Callable
from pathlib import Path

from harness import BUILD, Launcher, stats_lines

SMALL, LARGE = 500, 5
Program = Callable[[str], Path]


def test_mpich_names_the_provider_and_its_capabilities(launcher: Launcher, provider: str, program: Program) -> None:
    command = [program("exchange.c"), 1, 1]
    out = launcher.mpi(2, command, env={"MPIR_CVAR_DEBUG_SUMMARY": "1"}).succeeded().out
    assert re.search(rf"^libfabric provider: {provider}\b", out, re.MULTILINE), out
    for capability in ("TAGGED", "DATA", "AV_TABLE", "AM"):
        assert re.search(rf"^MPIDI_OFI_ENABLE_{capability}: 1$", out, re.MULTILINE), f"{capability} is off:\n{out}"


def test_own_counters_show_the_messages(launcher: Launcher, program: Program) -> None:
    run = launcher.mpi(2, [program("exchange.c"), SMALL, LARGE], env={"FI_UNIMEM_STATS": "1"}).succeeded()
    stats = stats_lines(run)
    assert len({line["pid"] for line in stats}) == 2, f"both ranks must report:\n{run}"
    for line in stats:
        assert line["sent"] >= SMALL + LARGE, line
        assert line["received"] >= SMALL + LARGE, line
        assert line["bytes_sent"] >= SMALL * 64 + LARGE * (1 << 20), line
        assert line["bytes_received"] >= SMALL * 64 + LARGE * (1 << 20), line
        assert line["eager"] >= SMALL, f"small messages go eagerly: {line}"
        assert line["rendezvous"] >= LARGE, f"large messages go by rendezvous: {line}"


def test_counters_are_silent_by_default(launcher: Launcher, program: Program) -> None:
    run = launcher.mpi(2, [program("exchange.c"), 1, 1]).succeeded()
    assert run.out == "exchanged 1 small and 1 large\n"
    (choice,) = run.err.splitlines()
    assert choice.startswith("unimem: MPICH 5.0.2 ("), "the one line of `unimem run`, and nothing but the program's own output"


def test_benchmark_reports_a_corrupted_byte(launcher: Launcher, program: Program) -> None:
    """./quickstart relies on this when it says that the data is right."""
    benchmark = program("bench/mpi_pingpong.c")
    for size in (64, 65536):
        command = [benchmark, "--max", 65536, "--seconds", "0.001", "--corrupt", size]
        run = launcher.mpi(2, command)
        assert run.status != 0
        assert f"DATA ERROR: rank 1, message 8 of {size} bytes: byte {size // 2} is" in run.err, str(run)
    launcher.mpi(2, [benchmark, "--max", 65536, "--seconds", "0.001"]).succeeded()


def test_the_library_is_where_the_documentation_says() -> None:
    assert (BUILD / "libunimem-fi.so").is_file()
    assert (BUILD / "unimem").is_file()
