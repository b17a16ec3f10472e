"""mpi4py's own test suite over the provider under test, against the same suite over libfabric's shm.

The results over shm, with the pinned versions, are in mpi4py_shm.json. The long run also runs the suite over shm, and
checks that this file is still right.
"""

import hashlib
import json
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from harness import BUILD, PROGRAMS, VENV, Launcher
from reference import Reference

REFERENCE = "shm"
# After so many seconds without a new test the suite hangs: the slowest test takes a few seconds, on a crowded machine a
# minute.
SILENCE = 100
# In these modules each process works by itself. They take two thirds of the suite's time; a short run leaves them out.
LOCAL = ("test_util_dtlib", "test_datatype", "test_pack")
WITHOUT_LOCAL = [word for module in LOCAL for word in ("-e", module)]
RECORD = Path(__file__).with_name("mpi4py_shm.json")
GOOD = ("passed", "skipped", "expected failure")

# Per rank: the outcome of every test.
Outcomes = list[dict[str, str]]


def running(prefix: Path) -> list[str]:
    """The test that each rank began last."""
    return [file.read_text() for file in sorted(prefix.parent.glob(f"{prefix.name}.*.running"))]


def last_step(prefix: Path) -> float:
    """When a rank last began a test."""
    return max((file.stat().st_mtime for file in prefix.parent.glob(f"{prefix.name}.*.running")), default=0)


def run_suite(
    launcher: Launcher,
    provider: str,
    ranks: int,
    directory: Path,
    prefix: Path,
    extra: dict[str, str],
    arguments: Sequence[str],
) -> Outcomes:
    command = [VENV / "bin" / "python", PROGRAMS / "mpi4py_suite.py", directory, prefix, *arguments]
    return watch_suite(
        launcher, launcher.mpi_command(ranks, command), launcher.environment(provider, extra), ranks, directory, prefix
    )


def watch_suite(
    launcher: Launcher,
    command: list[str],
    env: dict[str, str],
    ranks: int,
    directory: Path,
    prefix: Path,
    silence: float = SILENCE,
) -> Outcomes:
    """Runs the suite's command until it ends, or until no rank has begun a test for `silence` seconds: a hang."""
    log = BUILD / "results" / f"mpi4py-{prefix.name}-{ranks}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    start = time.time()
    with log.open("w") as output:
        process = launcher.start(command, env, stdout=output, stderr=subprocess.STDOUT, cwd=directory)
        while process.poll() is None and time.time() - max(start, last_step(prefix)) < silence:
            time.sleep(0.2)
        hangs = process.poll() is None
        launcher.kill_leftovers()
        process.wait()
    where = f"over {prefix.name}; the ranks were in {running(prefix)}; all output: {log}"
    assert not hangs, f"the suite hangs {where}"
    outcomes = []
    for rank in range(ranks):
        path = Path(f"{prefix}.{rank}.json")
        # A failed test alone makes the suite's status 1, so this file says more than the status.
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
    request: pytest.FixtureRequest,
) -> None:
    arguments = [] if request.config.getoption("--long") else WITHOUT_LOCAL
    sides: dict[str, dict[str, str]] = {provider: {}}
    if ranks == 2 and provider == "unimem" and request.config.getoption("--long"):
        sides["board"] = {"FI_UNIMEM_MACHINE": "board", "UNIMEM_BOARD": launcher.marker, "UNIMEM_EMU_TIMING": "off"}

    def run(under: Launcher, name: str, fi_provider: str, extra: dict[str, str]) -> Outcomes:
        start = time.monotonic()
        prefix = Path(tempfile.mkdtemp(dir=tmp_path)) / name  # a second attempt must not find files of the first
        outcomes = run_suite(under, fi_provider, ranks, suite_directory, prefix, extra, arguments)
        seconds = time.monotonic() - start
        counts = ", ".join(f"{n} {outcome}" for outcome, n in sorted(Counter(outcomes[0].values()).items()))
        bad = sorted(not_good(outcomes))
        figure(f"mpi4py's tests, {ranks} ranks, {name}: {counts}; {seconds:.0f} s; not good: {', '.join(bad) or 'none'}")
        assert sum(outcome == "passed" for outcome in outcomes[0].values()) > 900, "too few tests passed"
        return outcomes

    ours = [run(launcher, name, provider, extra) for name, extra in sides.items()]
    if not request.config.getoption("--long"):
        for outcomes in ours:
            compare(summary(outcomes), json.loads(RECORD.read_text(encoding="utf-8")))
        return
    reference = Reference(REFERENCE, launcher).result(lambda inside: run(inside, REFERENCE, REFERENCE, {}))
    for outcomes in ours:
        compare(summary(outcomes), summary(reference))
    if ranks == 2:
        short = [{test: outcome for test, outcome in rank.items() if not test.startswith(LOCAL)} for rank in reference]
        found = summary(short)
        found_file = tmp_path / RECORD.name
        found_file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        assert found == json.loads(RECORD.read_text(encoding="utf-8")), f"over shm it is otherwise now: {found_file}"


def names(outcomes: Outcomes, outcome: str) -> list[str]:
    return sorted(test for test, of in outcomes[0].items() if of == outcome)


def summary(outcomes: Outcomes) -> dict[str, Any]:
    """The parts of a run that are compared. A digest of names stands for the tests that each rank ran."""
    return {
        "tests": [hashlib.sha256("\n".join(sorted(rank)).encode()).hexdigest() for rank in outcomes],
        "skipped": names(outcomes, "skipped"),
        "not good": sorted(not_good(outcomes)),
    }


def compare(ours: dict[str, Any], reference: dict[str, Any]) -> None:
    assert ours["tests"] == reference["tests"], "not the same tests ran"
    assert set(ours["not good"]) <= set(reference["not good"])
    assert set(ours["skipped"]) <= set(reference["skipped"]), "nor may a test be skipped here that runs over shm"
