"""mpi4py's own tests on another MPI than .venv's, over unimem: nothing may go wrong that goes right over that MPI's own
transport."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from harness import PROGRAMS
from other_mpi import OtherMpi
from test_mpi4py import Outcomes, not_good, watch_suite

# What is nearest to the provider: pieces of every kind, probes, collectives and what a communicator needs. About 1000 tests.
CORE = ["test_p2p", "test_cco", "test_comm", "test_request", "test_status"]


def included(modules: Sequence[str]) -> list[str]:
    return [argument for module in modules for argument in ("-i", module)]


def run(mpi: OtherMpi, own: bool, arguments: Sequence[str], directory: Path, prefix: Path) -> Outcomes:
    assert mpi.launcher
    command = [mpi.python, PROGRAMS / "mpi4py_suite.py", directory, prefix, *arguments]
    return watch_suite(mpi.launcher, mpi.command(2, command, own), mpi.environment(None, own), 2, directory, prefix)


def compare(
    mpi: OtherMpi,
    arguments: Sequence[str],
    directory: Path,
    scratch: Path,
    figure: Callable[[str], None],
    known: Sequence[str] = (),
    at_least: int = 400,
) -> None:
    """Known: names of tests that fail over other providers, too, for a reason that stands where they are listed."""
    results = {}
    for name, own in ((f"{mpi.name}-own", True), (f"{mpi.name}-unimem", False)):
        start = time.monotonic()
        results[own] = run(mpi, own, arguments, directory, scratch / name)
        counts = ", ".join(f"{n} {outcome}" for outcome, n in sorted(Counter(results[own][0].values()).items()))
        bad = sorted(not_good(results[own]))
        seconds = time.monotonic() - start
        figure(f"mpi4py's tests, 2 ranks, {name}: {counts}; {seconds:.0f} s; not good: {', '.join(bad) or 'none'}")
    assert sum(outcome == "passed" for outcome in results[True][0].values()) >= at_least, "too few tests ran"
    for rank in range(2):
        assert results[False][rank].keys() == results[True][rank].keys(), "not the same tests ran"
    new = not_good(results[False]).keys() - not_good(results[True]).keys()
    assert {test for test in new if not any(test.endswith(name) for name in known)} == set()
    skipped = [{test for test, outcome in results[own][0].items() if outcome == "skipped"} for own in (False, True)]
    assert skipped[0] <= skipped[1], "skipped over unimem alone"
