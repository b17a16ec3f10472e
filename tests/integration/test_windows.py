"""MPI windows over unimem: one-sided operations of every rank on every rank, all results checked, on each MPI."""

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import mpi4py_elsewhere
import pytest
from harness import Launcher, stats_lines
from other_mpi import OtherMpi, stats_of_ranks

Program = Callable[[str], Path]
STATS = {"FI_UNIMEM_STATS": "1"}
# Open MPI's component for windows over RDMA, and its transport over libfabric; with VERBOSE their logs show their use.
OPENMPI_RDMA = {"OMPI_MCA_osc": "rdma", "OMPI_MCA_btl": "ofi,self"}
VERBOSE = {"OMPI_MCA_osc_base_verbose": "20", "OMPI_MCA_btl_base_verbose": "100", "OMPI_MCA_opal_common_ofi_verbose": "100"}


@pytest.mark.parametrize("ranks", [2, 4])
def test_mpich(launcher: Launcher, program: Program, ranks: int) -> None:
    run = launcher.mpi(ranks, [program("windows.c")], env=STATS, timeout=180).succeeded()
    assert run.out == f"windows are right on {ranks} ranks\n"
    assert all(line["mapped"] > 100 for line in stats_lines(run)), str(run)


@pytest.mark.parametrize("ranks", [2, 4])
def test_openmpi5_rdma(openmpi5: OtherMpi, ranks: int) -> None:
    """osc/rdma over btl/ofi, both chosen by settings: they carry the windows, and they use unimem."""
    run = openmpi5.run(ranks, [openmpi5.build("windows.c")], env=STATS | VERBOSE | OPENMPI_RDMA).succeeded()
    assert f"windows are right on {ranks} ranks\n" in run.out
    words = run.err + run.out
    assert len(re.findall(r"select: component rdma selected", words)) >= 3 * ranks, str(run)
    assert words.count('btl:ofi:provider_include = "unimem"') == ranks, str(run)  # it names only other ones
    assert words.count("select: init of component ofi returned success") == ranks, str(run)
    for_windows = [line for line in stats_lines(run) if line["mapped"] > 100]
    assert len(for_windows) == ranks, str(run)  # each rank has an endpoint for windows


def test_openmpi5_by_unimem_run(openmpi5: OtherMpi) -> None:
    """Without settings for windows, Open MPI uses its shared memory for MPI_Win_allocate, and unimem for the rest."""
    run = openmpi5.run_by_unimem(2, [openmpi5.build("windows.c")], STATS | VERBOSE)
    assert "windows are right on 2 ranks\n" in run.succeeded().out
    chosen = Counter(re.findall(r"select: component (\w+) selected", run.err + run.out))
    assert chosen["sm"] and chosen["rdma"], str(run)
    assert [rank["mapped"] > 100 for rank in stats_of_ranks(run)] == [True, True], str(run)


def test_openmpi5_does_not_move_the_buffer_of_each_operation(openmpi5: OtherMpi) -> None:
    """btl/ofi registers the local buffer of each operation above some size, also for remote writing, and deregisters it
    at once. unimem soon stops adopting it, and tries again after a while; how often depends on the load of the
    machine."""
    command = [openmpi5.build("bench/mpi_rma.c"), "--create", "--batches", 20, "--max", 4096]
    env = OPENMPI_RDMA | {"FI_LOG_LEVEL": "info", "FI_LOG_PROV": "unimem"}
    run = openmpi5.run(2, command, env=env, timeout=120).succeeded()
    assert run.out.endswith("data ok\n"), str(run)
    levels = re.findall(r"registration of (\d+) bytes at \S+ key \S+ (\w+)", run.err)
    assert ("1052672", "mapped") in levels or ("1048576", "mapped") in levels, "the window itself is mapped"
    brief = [level for size, level in levels if size == "4096"]
    assert len(brief) < 100 or "too much time went into moving memory" in run.err, str(Counter(brief))


@pytest.mark.parametrize("modules", [["test_rma"], pytest.param(["test_rma", "test_rma_nb", "test_win"], marks=pytest.mark.long)])
def test_openmpi5_mpi4py(
    openmpi5: OtherMpi, modules: list[str], suite_directory: Path, tmp_path: Path, figure: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in OPENMPI_RDMA.items():
        monkeypatch.setitem(openmpi5.unimem_settings, name, value)  # type: ignore[arg-type]
    # Shared windows need osc/sm, which these settings leave out.
    arguments = [*mpi4py_elsewhere.included(modules), "-x", "*.TestWinAllocateShared*"]
    mpi4py_elsewhere.compare(openmpi5, arguments, suite_directory, tmp_path, figure, at_least=30)


@pytest.mark.needs_impi
@pytest.mark.parametrize("ranks", [2, 4])
def test_intel_mpi(impi: OtherMpi, ranks: int) -> None:
    """Intel MPI executes accumulates by messages; puts and gets are loads and stores."""
    run = impi.run(ranks, [impi.build("windows.c")], env=STATS).succeeded()
    assert run.out == f"windows are right on {ranks} ranks\n"
    assert all(rank["mapped"] > 0 and rank["sent"] > 100 for rank in stats_of_ranks(run)), str(run)


@pytest.mark.needs_impi
def test_intel_mpi_imb_rma(impi: OtherMpi) -> None:
    """Every benchmark of IMB-RMA ends. The wheel's binary is built without IMB's CHECK; windows.c checks data."""
    arguments = ["-npmin", 2, "-msglog", "0:16", "-iter", 30, "-time", "0.1"]
    run = impi.run(2, [impi.bin / "IMB-RMA", *arguments], env=STATS | {"I_MPI_DEBUG": "5"}, timeout=300).succeeded()
    assert "libfabric provider: unimem" in run.out
    done = set(re.findall(r"^# Benchmarking (\w+)", run.out, re.MULTILINE))
    assert {"Unidir_put", "Bidir_get", "All_put_all", "Accumulate", "Fetch_and_op", "Compare_and_swap"} <= done
    assert "All processes entering MPI_Finalize" in run.out
    assert all(rank["mapped"] > 1000 for rank in stats_of_ranks(run)), str(run)
