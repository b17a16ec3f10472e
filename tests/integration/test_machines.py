"""Several machines in one job: FI_UNIMEM_MACHINE=shm,board. Even and odd ranks are in different partitions, so that
each rank has peers of both kinds."""

from collections.abc import Callable
from pathlib import Path

import pytest
from harness import BUILD, VENV, Launcher, Run, sent_by_machine
from other_mpi import OtherMpi

Program = Callable[[str], Path]
MPIEXEC = [BUILD / "unimem", "run", "--machine", "shm,board", "--", VENV / "bin" / "mpiexec", "-n"]
# Sets the partition from the rank's number. PMI_RANK: MPICH, Intel MPI; OMPI_COMM_WORLD_RANK: Open MPI.
IN_PARTITION = [
    "sh",
    "-c",
    'FI_UNIMEM_PARTITION=$((${PMI_RANK:-$OMPI_COMM_WORLD_RANK} % 2)); export FI_UNIMEM_PARTITION; exec "$@"',
    "sh",
]


@pytest.fixture
def both(launcher: Launcher) -> dict[str, str]:
    return {
        "UNIMEM_BOARD": launcher.marker,
        "UNIMEM_EMU_TIMING": "off",
        "FI_UNIMEM_STATS": "1",
        "FI_UNIMEM_MACHINE": "shm,board",
        "FI_UNIMEM_BOARD_LIBRARY": str(BUILD / "libunimem.so.1"),
    }


def by_machine(run: Run) -> dict[str, int]:
    """Messages that all ranks sent, by machine."""
    return {"shm": 0, "board": 0} | sent_by_machine(run)


@pytest.mark.parametrize("count", [20000, pytest.param(333334, marks=pytest.mark.long)])
def test_receives_from_anybody(launcher: Launcher, both: dict[str, str], program: Program, count: int) -> None:
    """The large count makes a million receives."""
    run = launcher.run_ranks([*MPIEXEC, "4"], [*IN_PARTITION, program("anybody.c"), str(count)], env=both, timeout=550)
    assert run.succeeded().out == f"{count} messages of each of 3 ranks came in order, whole\n"
    sent = by_machine(run)
    assert sent["shm"] >= count and sent["board"] >= 2 * count, str(run)


def test_onesided_and_collectives(launcher: Launcher, both: dict[str, str], program: Program) -> None:
    for name, arguments in (("windows.c", ["20"]), ("collectives.c", ["65536"])):
        command = [*IN_PARTITION, program(name), *arguments]
        run = launcher.run_ranks([*MPIEXEC, "4"], command, env=both, timeout=240).succeeded()
        assert all(by_machine(run).values()), str(run)


def test_ranks_may_prefer_different_machines(launcher: Launcher, both: dict[str, str], program: Program) -> None:
    """Even ranks use the board to all peers, odd ranks use shared memory where it reaches. An accumulate takes the same
    locks, whichever side executes it."""
    prefer = [
        "sh",
        "-c",
        'test $((PMI_RANK % 2)) = 1 || export FI_UNIMEM_MACHINE=board,shm; exec "$@"',
        "sh",
    ]
    mpiexec = [BUILD / "unimem", "run", "--", VENV / "bin" / "mpiexec", "-n", "4"]
    for name, arguments in (("anybody.c", ["2000"]), ("windows.c", ["20"])):
        command = [*prefer, program(name), *arguments]
        run = launcher.run_ranks(mpiexec, command, env=both, timeout=240).succeeded()
        assert all(by_machine(run).values()), str(run)


def test_openmpi5(openmpi5: OtherMpi, both: dict[str, str]) -> None:
    command = [*IN_PARTITION, openmpi5.build("anybody.c"), "2000"]
    run = openmpi5.run(4, command, env=both, timeout=240).succeeded()
    assert "2000 messages of each of 3 ranks came in order, whole\n" in run.out
    assert all(by_machine(run).values()), str(run)


def test_a_rank_without_the_second_machine_is_refused_in_words(
    launcher: Launcher, both: dict[str, str], program: Program
) -> None:
    env = both | {"FI_UNIMEM_MACHINE": "shm"}
    mpiexec = [BUILD / "unimem", "run", "--", VENV / "bin" / "mpiexec", "-n", "2"]
    run = launcher.run_ranks(mpiexec, [*IN_PARTITION, program("anybody.c"), "10"], env=env, timeout=60)
    assert run.status != 0 and "give both the same FI_UNIMEM_PARTITION" in run.err, str(run)
