"""MPI one-sided operations over unimem: executed by the initiator, whatever the target does."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import BUILD, Launcher, stats_lines

Program = Callable[[str], Path]
LEVEL = re.compile(r"registration of \d+ bytes at \S+ key \S+ (\w+)(.*)")


@pytest.mark.parametrize("how", [[], ["--create"]], ids=["MPI_Win_allocate", "MPI_Win_create"])
@pytest.mark.parametrize("window", [4096, 262144, 16777216])
def test_a_stopped_target_holds_nobody_up(launcher: Launcher, program: Program, window: int, how: list[str]) -> None:
    command = [program("bench/mpi_rma.c"), "--stop", "--bytes", window, "--batches", 3, *how]
    run = launcher.mpi(2, command, env={"FI_UNIMEM_STATS": "1", "FI_LOG_LEVEL": "info", "FI_LOG_PROV": "unimem"}, timeout=60)
    assert run.succeeded().out.endswith("data ok\n"), str(run)
    levels = {m[1] for m in LEVEL.finditer(run.err)}
    assert levels == {"mapped"}, f"the window is not mapped: {sorted(set(LEVEL.findall(run.err)))}"
    initiator, target = sorted(stats_lines(run), key=lambda line: line["mapped"], reverse=True)
    assert initiator["mapped"] > 1000 and target["mapped"] == 0, f"{initiator} {target}"


@pytest.mark.parametrize("env", [{"FI_UNIMEM_ADOPT": "0"}, {"FI_UNIMEM_ADOPT": "0", "FI_UNIMEM_COPY": "0"}], ids=["copy", "remote"])
def test_the_lower_levels_give_the_same_results(launcher: Launcher, program: Program, env: dict[str, str]) -> None:
    command = [program("bench/mpi_rma.c"), "--bytes", 262144, "--batches", 3]
    run = launcher.mpi(2, command, env=env | {"FI_UNIMEM_STATS": "1"}, timeout=120)
    assert run.succeeded().out.endswith("data ok\n"), str(run)
    assert all(line["mapped"] == 0 for line in stats_lines(run)), str(run)


def test_static_data_is_mapped_with_automatic_progress(launcher: Launcher) -> None:
    """Sandia OpenSHMEM's regions: 64 MiB of untouched heap, and static data, in processes whose only other thread is the
    provider's own."""
    env = {"FI_PROVIDER_PATH": str(BUILD), "FI_PROVIDER": "unimem", "FI_LOG_LEVEL": "info", "FI_LOG_PROV": "unimem"}
    run = launcher.run([BUILD / "tests/prov/prov_shmem_like_test"], env=env).succeeded()
    levels = [m[1] for m in LEVEL.finditer(run.err)]
    assert len(levels) >= 4 and set(levels) == {"mapped"}, str(run)
