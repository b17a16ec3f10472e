"""`unimem run --heap`: windows on malloc's memory are mapped without adoption, and programs run as without it."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import BUILD, PROGRAMS, VENV, Launcher, Run, stats_lines

Program = Callable[[str], Path]
UNIMEM = BUILD / "unimem"
HEAP = BUILD / "libunimem-heap.so"
LEVEL = re.compile(r"registration of (\d+) bytes at \S+ key \S+ (\w+)(.*)")
# Adoption is off, so memory that is mapped has not been adopted.
LOG = {"FI_UNIMEM_ADOPT": "0", "FI_UNIMEM_STATS": "1", "FI_LOG_LEVEL": "info", "FI_LOG_PROV": "unimem"}


def with_heap(launcher: Launcher, ranks: int, *command: str | Path, **env: str) -> Run:
    mpiexec = [UNIMEM, "run", "--heap", "--", VENV / "bin" / "mpiexec", "-n", str(ranks)]
    return launcher.run_ranks(mpiexec, command, env=env)


@pytest.mark.parametrize("how", [[], ["--create"]], ids=["MPI_Win_allocate", "MPI_Win_create"])
@pytest.mark.parametrize("window", [65536, 16777216])
def test_windows_are_mapped_without_adoption(launcher: Launcher, program: Program, window: int, how: list[str]) -> None:
    command = [program("bench/mpi_rma.c"), "--stop", "--bytes", str(window), "--batches", "3", *how]
    run = with_heap(launcher, 2, *command, **LOG).succeeded()
    assert run.out.endswith("data ok\n"), str(run)
    found = [m for m in LEVEL.finditer(run.err) if int(m[1]) >= window]
    assert len(found) == 2 and all(m[2] == "mapped" and "from the heap" in m[3] for m in found), str(run)
    initiator, target = sorted(stats_lines(run), key=lambda line: line["mapped"], reverse=True)
    assert initiator["mapped"] > 1000 and target["mapped"] == 0, f"{initiator} {target}"


MPI4PY = """
import os, subprocess, sys, threading
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
mine = np.full(1 << 20, float(comm.rank))
window = MPI.Win.Create(mine, comm=comm)
window.Fence()
window.Put(np.arange(1 << 17, dtype=float), (comm.rank + 1) % comm.size)
window.Fence()
assert mine[100] == 100 and mine[-1] == comm.rank
child = os.fork()
if child == 0:
    mine[:] = -1
    os._exit(int(np.zeros(1 << 18).any()))
assert os.waitpid(child, 0)[1] == 0
assert mine[100] == 100 and mine[-1] == comm.rank
results = []
threads = [threading.Thread(target=lambda: results.append(np.ones(1 << 18).sum())) for _ in range(8)]
[t.start() for t in threads], [t.join() for t in threads]
assert results == [1 << 18] * 8
assert subprocess.run(["echo", "x"], capture_output=True).stdout == b"x\\n"
total = comm.allreduce(np.full(1 << 18, 1.0))
assert (total == comm.size).all()
window.Free()
print("ok", comm.rank, flush=True)
"""


@pytest.mark.parametrize(("ranks", "mapped"), [(2, "1"), (4, "1"), (2, "auto"), (2, "0")])
def test_large_messages_are_copied_out_of_mapped_memory(launcher: Launcher, ranks: int, mapped: str) -> None:
    run = with_heap(launcher, ranks, VENV / "bin" / "python", PROGRAMS / "bodies.py", FI_UNIMEM_MAPPED=mapped, **LOG).succeeded()
    assert sorted(run.out.splitlines()) == [f"ok {rank}" for rank in range(ranks)], str(run)
    lines = stats_lines(run)
    if mapped == "1":
        assert all(line["mapped"] >= 80 and line["copied"] == line["bounced"] == 0 for line in lines), str(lines)
        assert ranks > 2 or sum(line["joint"] for line in lines) > 0, str(lines)  # if each rank has a processor
    if mapped == "auto":
        assert all(line["mapped"] > 0 for line in lines), str(lines)
    if mapped == "0":
        assert all(line["mapped"] == 0 for line in lines), str(lines)


def test_all_large_messages_are_mapped_where_none_is_to_go_in_records(launcher: Launcher) -> None:
    run = with_heap(launcher, 2, VENV / "bin" / "python", PROGRAMS / "bodies.py", FI_UNIMEM_COPY="1", **LOG).succeeded()
    lines = stats_lines(run)
    assert all(line["mapped"] >= 80 and line["copied"] == line["bounced"] == 0 for line in lines), str(lines)


def test_mpi4py_forks_threads_and_windows(launcher: Launcher) -> None:
    run = with_heap(launcher, 3, VENV / "bin" / "python", "-c", MPI4PY, **LOG).succeeded()
    assert sorted(run.out.split()) == sorted("ok 0 ok 1 ok 2".split()), str(run)
    assert sum("from the heap" in line for line in run.err.splitlines()) >= 3, str(run)


def test_the_users_preload_stays_in_front(launcher: Launcher) -> None:
    command = [UNIMEM, "run", "-q", "--heap", "--", UNIMEM, "run", "-q", "--heap", "--", "printenv", "LD_PRELOAD"]
    own = "/usr/lib/gcc/none.so"
    run = launcher.run(command, env={"LD_PRELOAD": own}).succeeded()
    libraries = run.out.strip().split(":")
    assert libraries[:2] == [own, str(HEAP)] and len(libraries) == 3, run.out
    assert Path(libraries[2]).name == "libjemalloc.so.2" and Path(libraries[2]).exists()


def test_without_jemalloc_the_program_runs_and_the_package_is_named(launcher: Launcher) -> None:
    run = launcher.run(["sort", "--version"], env={"LD_PRELOAD": str(HEAP)}).succeeded()
    assert "libjemalloc2" in run.err and run.out.startswith("sort"), str(run)


def test_a_program_with_an_allocator_of_its_own_runs(launcher: Launcher, program: Program) -> None:
    run = launcher.run([UNIMEM, "run", "-q", "--heap", "--", program("own_malloc.c")]).succeeded()
    assert run.out == "own allocator\n" and "an allocator of its own" in run.err, str(run)


def test_another_preloaded_allocator_wins(launcher: Launcher) -> None:
    names = sorted(Path("/usr/lib").glob("*/libtcmalloc_minimal.so.4"))
    assert names, "libtcmalloc-minimal4 is installed by ./check"
    run = launcher.run([UNIMEM, "run", "-q", "--heap", "--", "sort", "--version"], env={"LD_PRELOAD": str(names[0])})
    assert "an allocator of its own" in run.succeeded().err, str(run)


def test_a_missing_library_is_said(launcher: Launcher, tmp_path: Path) -> None:
    for name in ("unimem", "libunimem-fi.so"):
        shutil.copy(BUILD / name, tmp_path)
    run = launcher.run([tmp_path / "unimem", "run", "--heap", "--", "true"])
    assert run.status == 1 and "libunimem-heap.so is not beside the provider" in run.err, str(run)


def test_a_folder_with_a_space_is_refused(launcher: Launcher, tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    for name in ("unimem", "libunimem-fi.so", "libunimem-heap.so"):
        shutil.copy(BUILD / name, folder)
    run = launcher.run([folder / "unimem", "run", "--heap", "--", "true"])
    assert run.status == 1 and "space" in run.err, str(run)


def test_jemallocs_own_settings_are_read(launcher: Launcher) -> None:
    env = {"MALLOC_CONF": "stats_print:true"}
    run = launcher.run([UNIMEM, "run", "-q", "--heap", "--", VENV / "bin" / "python", "-c", "pass"], env=env)
    assert "jemalloc statistics" in run.succeeded().err, str(run)
