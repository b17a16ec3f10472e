"""Ranks that die by SIGKILL: the job ends and leaves nothing behind: no process, no file, no shared memory.

The launcher fixture checks processes and /dev/shm after every test; these tests arrange the deaths.
"""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from harness import Job, Launcher, shared_files

Program = Callable[[str], Path]
RANKS = 4


def ranks_running(job: Job, ranks: int) -> list[int]:
    """Waits until every rank reported that its traffic flows; returns their process ids."""
    return [int(line[1]) for line in job.wait_for("out", r"^running \d+ (\d+)\n", ranks)]


def shared_memory_kib() -> int:
    """Shmem of the whole host: tmpfs files, memfds and System V segments, also those that no file name shows.

    Without the files mpich_shm_*, which MPICH makes in MPI_Init and leaves behind when it is killed.
    """
    mpich = sum(file.stat().st_blocks // 2 for file in shared_files("mpich_shm_"))
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("Shmem:"):
            return int(line.split()[1]) - mpich
    raise AssertionError("/proc/meminfo has no Shmem")


def start_ring(launcher: Launcher, program: Program, ranks: int = RANKS) -> Job:
    return launcher.start_ranks(launcher.mpi_command(ranks), [program("forever.c")], launcher.environment())


def test_one_rank_killed_ends_the_job(launcher: Launcher, program: Program) -> None:
    """mpiexec notices the death and ends the other ranks, which must not delay that."""
    job = start_ring(launcher, program)
    os.kill(ranks_running(job, RANKS)[1], signal.SIGKILL)
    assert job.finish(timeout=60).status != 0


def test_all_ranks_killed_leave_nothing(launcher: Launcher, program: Program) -> None:
    job = start_ring(launcher, program)
    for pid in ranks_running(job, RANKS):
        os.kill(pid, signal.SIGKILL)
    assert job.finish(timeout=60).status != 0


def test_everything_killed_at_once_leaves_nothing(launcher: Launcher, program: Program) -> None:
    """No process of the job is left to clean up: neither mpiexec, nor its proxy, nor a rank."""
    job = start_ring(launcher, program)
    ranks_running(job, RANKS)
    for pid in launcher.processes():
        os.kill(pid, signal.SIGSTOP)  # none may notice the death of another
    for pid in launcher.processes():
        os.kill(pid, signal.SIGKILL)
    job.finish(timeout=60)
    assert launcher.wait_until_gone(10) == []


def test_killed_jobs_give_their_memory_back(launcher: Launcher, program: Program) -> None:
    """Ten jobs are killed while messages flow: the host's shared memory does not grow by as much as one job had."""

    def killed_job() -> int:
        job = start_ring(launcher, program, 2)
        ranks_running(job, 2)
        held = shared_memory_kib()
        launcher.kill_leftovers()
        job.finish(timeout=60)
        assert launcher.wait_until_gone(10) == []
        return held

    before = shared_memory_kib()
    held = [killed_job() - before for _ in range(10)]
    end = time.monotonic() + 10  # the kernel frees the pages of a dead process a little later
    while shared_memory_kib() - before >= max(1024, min(held)) and time.monotonic() < end:
        time.sleep(0.2)
    grown = shared_memory_kib() - before
    assert grown < max(1024, min(held)), f"{grown} KiB more shared memory than before; the jobs held {held}"


def test_next_job_runs_after_a_killed_one(launcher: Launcher, program: Program) -> None:
    job = start_ring(launcher, program)
    ranks_running(job, RANKS)
    launcher.kill_leftovers()
    job.finish(timeout=60)
    launcher.mpi(RANKS, [program("collectives.c"), 4096]).succeeded()
