"""An ordinary user: nothing in the provider needs root."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import BUILD, VENV, Launcher


@pytest.fixture
def world_readable(program: Callable[[str], Path]) -> Iterator[Path]:
    """A copy of what a run needs, where every user may read it: the checkout may lie in root's home."""
    top = Path(tempfile.mkdtemp(prefix="unimem-user-"))
    try:
        top.chmod(0o755)
        (top / "bin").mkdir()
        for file in (BUILD / "unimem", BUILD / "libunimem-fi.so", program("exchange.c"), program("collectives.c")):
            shutil.copy(file, top / "bin")
        for name in ("mpiexec.hydra", "hydra_pmi_proxy"):
            shutil.copy(VENV / "bin" / name, top / "bin")
        shutil.copytree(VENV / "lib", top / "lib", ignore=shutil.ignore_patterns("python*"), symlinks=True)
        yield top
    finally:
        shutil.rmtree(top)


def test_ordinary_user_runs_mpi(launcher: Launcher, world_readable: Path, as_user: list[str]) -> None:
    bin_directory = world_readable / "bin"
    mpiexec = [*as_user, bin_directory / "unimem", "run", "--", bin_directory / "mpiexec.hydra", "-n"]
    env = {"LD_LIBRARY_PATH": str(world_readable / "lib"), "HOME": "/", "MPIR_CVAR_DEBUG_SUMMARY": "1"}
    run = launcher.run_ranks([*mpiexec, "2"], [bin_directory / "exchange", "50", "3"], env=env, cwd="/").succeeded()
    assert "exchanged 50 small and 3 large" in run.out
    assert f"libfabric provider: {launcher.provider}" in run.out, str(run)
    launcher.run_ranks([*mpiexec, "8"], [bin_directory / "collectives", "16384"], env=env, cwd="/").succeeded()
