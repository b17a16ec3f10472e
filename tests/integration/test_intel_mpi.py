"""Intel MPI over unimem: only with --impi, because it is proprietary (Intel Simplified Software License)."""

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import mpi4py_elsewhere
import other_mpi
import pytest
from harness import BUILD
from other_mpi import OtherMpi

pytestmark = pytest.mark.needs_impi


def test_intel_mpi_names_the_provider(impi: OtherMpi) -> None:
    run = impi.run(2, [impi.build("exchange.c"), 1, 1], env={"I_MPI_DEBUG": "5"}).succeeded()
    assert re.search(r"MPI startup\(\): libfabric provider: unimem$", run.out, re.MULTILINE), str(run)


def test_messages_go_through_unimem(impi: OtherMpi) -> None:
    other_mpi.messages_go_through_unimem(impi)


def test_unimem_run_is_enough(impi: OtherMpi) -> None:
    other_mpi.unimem_run_is_enough(impi)


def test_pingpong(impi: OtherMpi) -> None:
    other_mpi.pingpong_is_right(impi, 1 << 20)


@pytest.mark.parametrize("ranks", [2, 4, 7])
def test_collectives(impi: OtherMpi, ranks: int) -> None:
    other_mpi.collectives_are_right(impi, ranks)


@pytest.mark.parametrize("ranks", [2, 4])
def test_matching(impi: OtherMpi, ranks: int) -> None:
    other_mpi.matching_is_right(impi, ranks)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize(
    "largest",
    [pytest.param(14, id="to 16 KiB"), pytest.param(22, id="to 4 MiB", marks=pytest.mark.long)],
)
def test_imb_mpi1(impi: OtherMpi, ranks: int, largest: int) -> None:
    """Every benchmark of IMB-MPI1 ends. The wheel's binary is built without IMB's CHECK, so it does not check the data;
    the other tests here do."""
    arguments = ["-npmin", ranks, "-msglog", f"0:{largest}", "-iter", 50, "-time", "0.3"]
    run = impi.run(ranks, [impi.bin / "IMB-MPI1", *arguments], timeout=900).succeeded()
    done = re.findall(r"^# Benchmarking (\w+)", run.out, re.MULTILINE)
    assert {"PingPong", "Sendrecv", "Exchange", "Allreduce", "Alltoall", "Alltoallv", "Bcast", "Barrier"} <= set(done)
    assert "All processes entering MPI_Finalize" in run.out
    assert str(1 << largest) in run.out


@pytest.mark.long
def test_mpi4py_suite(impi: OtherMpi, suite_directory: Path, tmp_path: Path, figure: Callable[[str], None]) -> None:
    arguments = mpi4py_elsewhere.included(mpi4py_elsewhere.CORE)
    mpi4py_elsewhere.compare(impi, arguments, suite_directory, tmp_path, figure)


@pytest.fixture
def world_readable(impi: OtherMpi) -> Iterator[Path]:
    """A copy of what a run needs, where every user may read it: the checkout may lie in root's home."""
    top = Path(tempfile.mkdtemp(prefix="unimem-impi-"))
    try:
        top.chmod(0o755)
        ignored = shutil.ignore_patterns("python*", "IMB-*", "*-GPU")
        for name in ("bin", "lib", "etc"):
            if (impi.bin.parent / name).is_dir():
                shutil.copytree(impi.bin.parent / name, top / name, ignore=ignored, symlinks=True)
        programs = [impi.build(name) for name in ("exchange.c", "matching.c", "bench/mpi_rma.c")]
        for file in (BUILD / "unimem", BUILD / "libunimem-fi.so", *programs):
            shutil.copy(file, top / "bin")
        yield top
    finally:
        shutil.rmtree(top)


def test_ordinary_user(impi: OtherMpi, world_readable: Path, as_user: list[str]) -> None:
    home = world_readable / "bin"
    env = {
        "FI_UNIMEM_STATS": "1",
        "HOME": "/",
        "I_MPI_DEBUG": "5",
        "LD_LIBRARY_PATH": str(world_readable / "lib"),
        "PATH": f"{home}:{os.environ['PATH']}",
    }
    assert impi.launcher
    for ranks, command, said in (
        (2, [home / "exchange", "50", "3"], "exchanged 50 small and 3 large"),
        (4, [home / "matching"], "matching is right on 4 ranks"),
        (2, [home / "mpi_rma", "--batches", "3"], "data ok"),
    ):
        mpiexec = [*as_user, home / "unimem", "run", "--", home / "mpiexec.hydra", "-n", str(ranks)]
        run = impi.launcher.run_ranks(mpiexec, command, env=env, cwd="/").succeeded()
        assert said in run.out
        assert "MPI startup(): libfabric provider: unimem" in run.out, str(run)
        assert len(other_mpi.stats_of_ranks(run)) == ranks, str(run)
    # MPI_Win_allocate gives a part of a file that is no longer open; peers can map it because both ranks map the file
    assert max(rank["mapped"] for rank in other_mpi.stats_of_ranks(run)) > 1000, str(run)
