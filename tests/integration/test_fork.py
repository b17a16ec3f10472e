"""A rank forks; the child ends on its own; the ranks go on."""

import re

import pytest
from harness import PROGRAMS, VENV, Launcher, Run
from other_mpi import OtherMpi

PROGRAM = PROGRAMS / "fork_child.py"


def statuses(run: Run) -> list[int]:
    """The status of each rank's child, as waitpid() returned it."""
    return [int(status, 16) for status in re.findall(r"the child's status is (0x[0-9a-f]+)", run.succeeded().out)]


@pytest.mark.parametrize("way", ["finalize", "leave"])
def test_mpich(launcher: Launcher, way: str) -> None:
    run = launcher.mpi(2, [VENV / "bin" / "python", PROGRAM, way])
    assert statuses(run) == [0, 0], str(run)


def open_mpi(mpi: OtherMpi) -> None:
    """In MPI_Finalize() Open MPI waits for a thread that a child does not have, over every transport. Only an error
    ends this wait.

    So a child that finalises must end with status 1 and Open MPI's message: it must neither hang nor die by a signal.
    """
    run = mpi.run(2, [mpi.python, PROGRAM, "leave"])
    assert statuses(run) == [0, 0], str(run)
    run = mpi.run(2, [mpi.python, PROGRAM, "finalize"])
    assert statuses(run) == [0x100, 0x100], str(run)
    assert "Operation not permitted in current state" in run.out + run.err, str(run)


def test_open_mpi_5(openmpi5: OtherMpi) -> None:
    open_mpi(openmpi5)


def test_open_mpi_4(openmpi4: OtherMpi) -> None:
    open_mpi(openmpi4)
