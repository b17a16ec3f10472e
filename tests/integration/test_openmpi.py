"""Open MPI 5, the unmodified wheel, over unimem."""

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

VERBOSE = {"OMPI_MCA_opal_common_ofi_verbose": "100"}

# Open MPI's pml/cm has no fault tolerance: MPIX_Comm_revoke does nothing, also over libfabric's tcp and sockets.
KNOWN = ["TestULFMInter.testRevoke", "TestULFMSelf.testRevoke", "TestULFMWorld.testRevoke"]


def test_open_mpi_names_the_provider(openmpi5: OtherMpi) -> None:
    run = openmpi5.run(2, [openmpi5.build("exchange.c"), 1, 1], env=VERBOSE).succeeded()
    assert len(re.findall(r"mtl:ofi:provider: unimem\b", run.err + run.out)) == 2, str(run)


def test_messages_go_through_unimem(openmpi5: OtherMpi) -> None:
    other_mpi.messages_go_through_unimem(openmpi5)


def test_nothing_is_printed_by_default(openmpi5: OtherMpi) -> None:
    run = openmpi5.run(2, [openmpi5.build("exchange.c"), 1, 1]).succeeded()
    assert (run.out, run.err) == ("exchanged 1 small and 1 large\n", "")


def test_without_the_provider_it_says_so(openmpi5: OtherMpi, tmp_path: Path) -> None:
    run = openmpi5.run(2, [openmpi5.build("exchange.c"), 1, 1], env={"FI_PROVIDER_PATH": str(tmp_path)})
    assert run.status != 0
    assert "No components were able to be opened in the pml framework" in run.out + run.err, str(run)


def test_unimem_run_is_enough(openmpi5: OtherMpi) -> None:
    other_mpi.unimem_run_is_enough(openmpi5)


def test_pingpong(openmpi5: OtherMpi) -> None:
    other_mpi.pingpong_is_right(openmpi5, 1 << 20)


@pytest.mark.parametrize("ranks", [2, 4, 7, pytest.param(16, marks=pytest.mark.long)])
def test_collectives(openmpi5: OtherMpi, ranks: int) -> None:
    other_mpi.collectives_are_right(openmpi5, ranks)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_matching(openmpi5: OtherMpi, ranks: int) -> None:
    other_mpi.matching_is_right(openmpi5, ranks)


@pytest.mark.parametrize("modules", [["test_p2p"], pytest.param([], marks=pytest.mark.long)], ids=["p2p", "all"])
def test_mpi4py_suite(
    openmpi5: OtherMpi,
    modules: list[str],
    suite_directory: Path,
    tmp_path: Path,
    figure: Callable[[str], None],
) -> None:
    arguments = mpi4py_elsewhere.included(modules)
    at_least = 150 if modules else 1500
    mpi4py_elsewhere.compare(openmpi5, arguments, suite_directory, tmp_path, figure, KNOWN, at_least)


@pytest.fixture
def world_readable(openmpi5: OtherMpi) -> Iterator[Path]:
    """A copy of what a run needs, where every user may read it: the checkout may lie in root's home."""
    top = Path(tempfile.mkdtemp(prefix="unimem-openmpi-"))
    try:
        top.chmod(0o755)
        ignored = shutil.ignore_patterns("python*", "lib64")
        for name in ("bin", "lib", "share", "etc"):
            shutil.copytree(openmpi5.bin.parent / name, top / name, ignore=ignored, symlinks=True)
        for file in (BUILD / "libunimem-fi.so", openmpi5.build("exchange.c"), openmpi5.build("matching.c")):
            shutil.copy(file, top / "bin")
        yield top
    finally:
        shutil.rmtree(top)


def test_ordinary_user(openmpi5: OtherMpi, world_readable: Path, as_user: list[str]) -> None:
    home = world_readable / "bin"
    options = [*openmpi5.crowded, *openmpi5.over_unimem]
    env = {
        "FI_PROVIDER_PATH": str(home),
        "FI_UNIMEM_STATS": "1",
        "HOME": "/",
        "LD_LIBRARY_PATH": str(world_readable / "lib"),
        "OPAL_PREFIX": str(world_readable),
        "PMIX_PREFIX": str(world_readable),
        "PRTE_PREFIX": str(world_readable),
        "PATH": f"{home}:{os.environ['PATH']}",
    }
    assert openmpi5.launcher
    for ranks, command, said in (
        (2, [home / "exchange", "50", "3"], "exchanged 50 small and 3 large"),
        (4, [home / "matching"], "matching is right on 4 ranks"),
    ):
        mpiexec = [*as_user, home / "mpiexec", *options, "-n", str(ranks)]
        run = openmpi5.launcher.run_ranks(mpiexec, command, env=env, cwd="/").succeeded()
        assert said in run.out
        assert len(other_mpi.stats_of_ranks(run)) == ranks, str(run)
