"""The tests themselves rely on this: the lines that ranks print stay whole, and in the order of the ranks."""

import pytest
from harness import VENV, Launcher, Run
from other_mpi import OtherMpi

# Each rank prints its lines in pieces, none of which is a whole line.
LINES = 40
IN_PIECES = f"""
rank=${{PMI_RANK:-$OMPI_COMM_WORLD_RANK}}
for i in $(seq {LINES}); do
    for piece in "rank $rank " "is " "at " "line " "$i"; do printf %s "$piece"; printf %s "$piece" >&2; sleep 0.002; done
    echo; echo >&2
done
"""


def check_lines(run: Run, ranks: int) -> None:
    for text in (run.out, run.err):
        lines = [line for line in text.splitlines() if line.startswith("rank ")]
        assert lines == [f"rank {rank} is at line {i + 1}" for rank in range(ranks) for i in range(LINES)], str(run)


def test_lines_of_ranks_stay_whole(launcher: Launcher) -> None:
    check_lines(launcher.mpi(4, ["sh", "-c", IN_PIECES]).succeeded(), 4)


def test_lines_of_open_mpis_ranks_stay_whole(openmpi4: OtherMpi, openmpi5: OtherMpi) -> None:
    for mpi in (openmpi4, openmpi5):
        check_lines(mpi.run(4, ["sh", "-c", IN_PIECES]).succeeded(), 4)


def test_mpi4pys_unbuffered_lines_stay_whole(launcher: Launcher) -> None:
    """print() writes a line's words one by one when Python does not buffer."""
    words = "from mpi4py import MPI\nfor i in range(200): print('ok', MPI.COMM_WORLD.rank, i)"
    run = launcher.mpi(3, [VENV / "bin" / "python", "-u", "-c", words]).succeeded()
    assert run.out.splitlines() == [f"ok {rank} {i}" for rank in range(3) for i in range(200)], str(run)


def test_ranks_of_one_job_may_run_different_programs(launcher: Launcher) -> None:
    run = launcher.mpi(1, ["echo", "first"], more=[["echo", "second"], ["echo", "third"]]).succeeded()
    assert run.out == "first\nsecond\nthird\n"


def test_what_a_rank_printed_before_it_hung_is_shown(launcher: Launcher) -> None:
    with pytest.raises(AssertionError, match="did not end within 3 s(?s:.*)last words of 1"):
        launcher.mpi(2, ["sh", "-c", 'echo "last words of $PMI_RANK"; exec sleep 1000'], timeout=3)
    assert not launcher.wait_until_gone(10)
