"""Fixtures of the integration tests, and the rule that a test leaves neither a process nor a shared file."""

import dataclasses
import os
import pwd
import subprocess
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

import other_mpi
import pytest
from harness import BUILD, PROGRAMS, TOP, VENV, Launcher, describe, remove_unmapped, shared_files

USER = "nobody"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="also run the slow tests")
    parser.addoption("--impi", action="store_true", help="also test Intel MPI (proprietary; in .venv-impi)")
    parser.addoption("--provider", default="unimem", help="the libfabric provider under test (default: unimem)")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long: slow; runs only with --long")
    config.addinivalue_line("markers", "needs_impi: tests Intel MPI; runs only with --impi")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects slow tests and tests of optional software. They are not skipped: a skip is a test that should have
    run."""
    unwanted = [mark for mark, option in (("long", "--long"), ("needs_impi", "--impi")) if not config.getoption(option)]
    left_out = [item for item in items if any(item.get_closest_marker(mark) for mark in unwanted)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def provider(request: pytest.FixtureRequest) -> str:
    return request.config.getoption("--provider")


@pytest.fixture
def launcher(provider: str) -> Iterator[Launcher]:
    before, before_mpich = shared_files("unimem"), shared_files("mpich_shm_")
    launcher = Launcher(provider)
    yield launcher
    # mpiexec's helpers may need a moment after mpiexec itself.
    left = launcher.wait_until_gone(10)
    described = [describe(pid) for pid in left]
    launcher.kill_leftovers()
    remove_unmapped(shared_files("mpich_shm_") - before_mpich)
    assert not left, f"processes left behind: {described}"
    new = shared_files("unimem") - before
    assert not new, f"files left behind: {sorted(new)}"


@pytest.fixture
def openmpi5(launcher: Launcher) -> other_mpi.OtherMpi:
    """Open MPI 5, the wheel."""
    return dataclasses.replace(other_mpi.openmpi5(), launcher=launcher)


@pytest.fixture
def openmpi4(launcher: Launcher) -> other_mpi.OtherMpi:
    """Debian's Open MPI 4.1."""
    return dataclasses.replace(other_mpi.openmpi4(), launcher=launcher)


@pytest.fixture
def impi(launcher: Launcher) -> other_mpi.OtherMpi:
    return dataclasses.replace(other_mpi.impi(), launcher=launcher)


@pytest.fixture(scope="session")
def program() -> Callable[[str], Path]:
    """Builds a C program of this tree with the wheel's MPICH, once; returns its path."""

    def build(source_name: str) -> Path:
        source = TOP / source_name if "/" in source_name else PROGRAMS / source_name
        target = BUILD / "tests" / "mpi" / source.stem
        newest = max(file.stat().st_mtime for file in (source, *PROGRAMS.glob("*.h")))
        if not target.exists() or target.stat().st_mtime < newest:
            target.parent.mkdir(parents=True, exist_ok=True)
            command = [VENV / "bin" / "mpicc", "-std=gnu17", "-O2", "-g", "-Wall", "-Wextra", "-Werror"]
            subprocess.run([*command, "-o", target, source], check=True)
        return target

    return build


@pytest.fixture
def figure() -> Callable[[str], None]:
    """Records a measured figure; ./check prints them all at its end. A figure never decides whether a test passes."""

    def record(text: str) -> None:
        print(text)
        if path := os.environ.get("UNIMEM_FIGURES"):
            with open(path, "a", encoding="utf-8") as file:
                file.write(text + "\n")

    return record


@pytest.fixture(scope="session")
def suite_directory() -> Path:
    """mpi4py's own tests, which only its source distribution has: fetched once into .cache, unpacked in the build."""
    name = f"mpi4py-{metadata.version('mpi4py')}"
    archive = TOP / ".cache" / f"{name}.tar.gz"
    if not archive.exists():
        archive.parent.mkdir(exist_ok=True)
        requirement = name.replace("-", "==")
        command = [VENV / "bin" / "python", "-m", "pip", "download", "--no-deps", "--no-binary", "mpi4py"]
        subprocess.run([*command, "--dest", archive.parent, requirement], check=True, timeout=300)
    directory = BUILD / "tests" / name
    if not (directory / "test" / "main.py").exists():
        directory.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["tar", "-xzf", archive, "-C", directory.parent], check=True)
    return directory / "test"


@pytest.fixture
def as_user() -> list[str]:
    """The prefix that runs a command as an ordinary user; empty if the tests already run as one."""
    if os.geteuid() != 0:
        return []
    user = pwd.getpwnam(USER)
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--no-new-privs"]
