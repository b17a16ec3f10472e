"""mpi4py's own tests on another MPI than .venv's, over unimem: a test that passes over that MPI's own transport must
pass over unimem, too."""

import dataclasses
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from harness import PROGRAMS, Launcher
from other_mpi import OtherMpi
from reference import Reference
from test_mpi4py import Outcomes, not_good, watch_suite

# The modules nearest to the provider: point to point of every kind, probes, collectives, and what a communicator needs.
# About 1000 tests.
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
    """known: names of tests that fail over other providers, too; the reason is given where they are listed."""

    def side(name: str, own: bool, under: Launcher) -> Outcomes:
        start = time.monotonic()
        prefix = Path(tempfile.mkdtemp(dir=scratch)) / f"{mpi.name}-{name}"
        outcomes = run(dataclasses.replace(mpi, launcher=under), own, arguments, directory, prefix)
        counts = ", ".join(f"{n} {outcome}" for outcome, n in sorted(Counter(outcomes[0].values()).items()))
        bad = sorted(not_good(outcomes))
        seconds = time.monotonic() - start
        figure(f"mpi4py's tests, 2 ranks, {prefix.name}: {counts}; {seconds:.0f} s; not good: {', '.join(bad) or 'none'}")
        return outcomes

    def own_transport(under: Launcher) -> Outcomes:
        outcomes = side("own", True, under)
        assert sum(outcome == "passed" for outcome in outcomes[0].values()) >= at_least, "too few tests ran"
        return outcomes

    assert mpi.launcher
    ours = side("unimem", False, mpi.launcher)
    reference = Reference(f"{mpi.name}-own", mpi.launcher).result(own_transport)
    for rank in range(2):
        assert ours[rank].keys() == reference[rank].keys(), "not the same tests ran"
    new = not_good(ours).keys() - not_good(reference).keys()
    assert {test for test in new if not any(test.endswith(name) for name in known)} == set()
    skipped = [{test for test, outcome in outcomes[0].items() if outcome == "skipped"} for outcomes in (ours, reference)]
    assert skipped[0] <= skipped[1], "skipped over unimem alone"
