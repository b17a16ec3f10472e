"""Fixtures of the integration tests, and the rule that a test leaves neither a process nor a shared file."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import BUILD, PROGRAMS, TOP, VENV, Launcher, describe, remove_unmapped, shared_files


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="also run the slow tests")
    parser.addoption("--provider", default="unimem", help="the libfabric provider under test (default: unimem)")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long: slow; runs only with --long")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Slow tests are left out, not skipped: a skip is something that should have run."""
    if config.getoption("--long"):
        return
    left_out = [item for item in items if item.get_closest_marker("long")]
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


@pytest.fixture(scope="session")
def program() -> Callable[[str], Path]:
    """Builds a C program of ours with the wheel's MPICH, once; returns its path."""

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
