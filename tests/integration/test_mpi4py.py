"""mpi4py's own test suite over the provider under test, against the same suite over libfabric's shm."""

import json
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest
from harness import BUILD, PROGRAMS, TOP, VENV, Launcher

REFERENCE = "shm"
# Seconds without a new test that mean a hang: the slowest test takes a few seconds, on a crowded machine a minute.
SILENCE = 240
GOOD = ("passed", "skipped", "expected failure")

# Per rank: the outcome of every test.
Outcomes = list[dict[str, str]]


@pytest.fixture(scope="session")
def suite_directory() -> Path:
    """The tests are only in the source distribution: fetched once into .cache, unpacked in the build directory."""
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


def running(prefix: Path) -> list[str]:
    """The test that each rank began last."""
    return [file.read_text() for file in sorted(prefix.parent.glob(f"{prefix.name}.*.running"))]


def last_step(prefix: Path) -> float:
    """When a rank last began a test."""
    return max((file.stat().st_mtime for file in prefix.parent.glob(f"{prefix.name}.*.running")), default=0)


def run_suite(launcher: Launcher, provider: str, ranks: int, directory: Path, prefix: Path) -> Outcomes:
    command = [VENV / "bin" / "python", PROGRAMS / "mpi4py_suite.py", directory, prefix]
    log = BUILD / "results" / f"mpi4py-{provider}-{ranks}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    start = time.time()
    with log.open("w") as output:
        process = launcher.start(
            launcher.mpi_command(ranks, command),
            launcher.environment(provider),
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=directory,
        )
        while process.poll() is None and time.time() - max(start, last_step(prefix)) < SILENCE:
            time.sleep(0.2)
        hangs = process.poll() is None
        launcher.kill_leftovers()
        process.wait()
    where = f"over {provider}; the ranks were in {running(prefix)}; all output: {log}"
    assert not hangs, f"the suite hangs {where}"
    outcomes = []
    for rank in range(ranks):
        path = Path(f"{prefix}.{rank}.json")
        # A test that fails ends the suite with status 1, so the status says less than this file.
        assert path.exists(), f"rank {rank} died {where}"
        outcomes.append(json.loads(path.read_text()))
    return outcomes


def not_good(outcomes: Outcomes) -> dict[str, str]:
    """The tests that did not go well on some rank, with the worst outcome."""
    return {test: outcome for rank in outcomes for test, outcome in sorted(rank.items()) if outcome not in GOOD}


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.long)])
def test_suite_gives_the_results_of_shm(
    launcher: Launcher,
    provider: str,
    ranks: int,
    suite_directory: Path,
    tmp_path: Path,
    figure: Callable[[str], None],
) -> None:
    results = {}
    for name in dict.fromkeys((REFERENCE, provider)):
        start = time.monotonic()
        results[name] = run_suite(launcher, name, ranks, suite_directory, tmp_path / name)
        seconds = time.monotonic() - start
        counts = ", ".join(f"{n} {outcome}" for outcome, n in sorted(Counter(results[name][0].values()).items()))
        bad = sorted(not_good(results[name]))
        figure(f"mpi4py's tests, {ranks} ranks, {name}: {counts}; {seconds:.0f} s; not good: {', '.join(bad) or 'none'}")

    reference, ours = results[REFERENCE], results[provider]
    assert sum(outcome == "passed" for outcome in reference[0].values()) > 900, "the reference run is not to be trusted"
    for rank in range(ranks):
        assert ours[rank].keys() == reference[rank].keys(), "not the same tests ran"
    assert not_good(ours).keys() <= not_good(reference).keys()
    # Nor may a test be skipped here that runs over shm.
    skipped = [{test for test, outcome in side[0].items() if outcome == "skipped"} for side in (ours, reference)]
    assert skipped[0] <= skipped[1]
