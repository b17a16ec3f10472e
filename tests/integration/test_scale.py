"""Many more ranks than cores: collectives with checked data, the time that MPI_Init takes, memory per rank."""

import re
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import Launcher
from reference import Reference

REFERENCE = "shm"
ROUNDS = 3


def run_collectives(
    launcher: Launcher, program: Path, ranks: int, provider: str, timeout: float = 600
) -> dict[str, float]:
    env = {"UM_TEST_START": repr(time.monotonic())}
    out = launcher.mpi(ranks, [program], provider=provider, env=env, timeout=timeout).succeeded().out
    values = {key: float(value) for key, value in re.findall(r"(\w+)=([\d.]+)", out)}
    assert values["ranks"] == ranks, out
    return values


@pytest.mark.parametrize("ranks", [16, pytest.param(64, marks=pytest.mark.long)])
def test_alltoall_and_allreduce(
    launcher: Launcher,
    provider: str,
    ranks: int,
    program: Callable[[str], Path],
    figure: Callable[[str], None],
) -> None:
    collectives = program("collectives.c")
    reference = Reference(REFERENCE, launcher)
    measured: dict[str, list[dict[str, float]]] = {provider: [], REFERENCE: []}
    limit = 120 + 8 * ranks
    for _ in range(ROUNDS):  # interleaved: the machine's own speed drifts
        measured[provider].append(run_collectives(launcher, collectives, ranks, provider))
        if beside := reference.attempt(lambda inside: run_collectives(inside, collectives, ranks, REFERENCE, limit)):
            measured[REFERENCE].append(beside)
    if reference.failure:
        figure(f"{ranks} ranks: {reference.failure}")
    for name, runs in measured.items():
        if not runs:
            continue
        init = statistics.median(run["init_seconds"] for run in runs)
        mean = statistics.median(run["pss_mean_kib"] for run in runs)
        most = max(run["pss_max_kib"] for run in runs)
        figure(
            f"{ranks} ranks, {name}: MPI_Init ends after {init:.2f} s (median of {len(runs)}), "
            f"memory per rank {mean / 1024:.1f} MiB (Pss, mean), at most {most / 1024:.1f} MiB"
        )


def test_results_do_not_depend_on_odd_rank_counts(launcher: Launcher, program: Callable[[str], Path]) -> None:
    for ranks in (1, 3, 7):
        launcher.mpi(ranks, [program("collectives.c"), 4096]).succeeded()
