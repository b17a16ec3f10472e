"""Runs mpi4py's own test suite and records the outcome of every test, one JSON file per rank.

  mpi4py_suite.py TEST_DIRECTORY OUTPUT_PREFIX [ARGUMENT ...]

The arguments go to mpi4py's test/main.py (-e MODULE and -x TEST leave out, -i MODULE includes).
Writes OUTPUT_PREFIX.RANK.json at the end: {test: outcome}, and OUTPUT_PREFIX.RANK.running before every test: its name,
so that a crash or a hang shows where it happened.

It leaves out spawn and dynproc, which start further processes: that concerns the process manager. It also leaves out
testDistgraphcomm, which hangs or fails now and then over every netmod (also over libfabric's tcp and shm, and always
over UCX): MPICH 5.0.2's MPI_Dist_graph_create probes any source and then receives from any source, and the receive may
take another message than the one whose length was probed.
"""

import json
import sys
import unittest
from pathlib import Path

LEFT_OUT = ["-e", "spawn", "-e", "dynproc", "-x", "*.testDistgraphcomm"]
TEST_DIRECTORY, PREFIX, ARGUMENTS = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
sys.dont_write_bytecode = True
sys.path.insert(0, str(TEST_DIRECTORY))

import main as suite  # noqa: E402  (mpi4py's test/main.py)


OUTCOMES: dict[str, str] = {}


def write(suffix: str, text: str) -> None:
    from mpi4py import MPI  # not before the suite has chosen how MPI is initialised

    Path(f"{PREFIX}.{MPI.COMM_WORLD.Get_rank()}.{suffix}").write_text(text)


class Result(unittest.TextTestResult):
    """Notes every outcome; a test with subtests fails when one of them does."""

    def startTest(self, test: unittest.TestCase) -> None:
        write("running", test.id())
        OUTCOMES[test.id()] = "running"
        super().startTest(test)

    def note(self, test: object, outcome: str) -> None:
        OUTCOMES[test.id()] = outcome  # type: ignore[attr-defined]

    def stopTest(self, test: unittest.TestCase) -> None:
        if OUTCOMES[test.id()] == "running":  # unittest reports no success when a subtest failed
            self.note(test, "failed")
        super().stopTest(test)

    def addSuccess(self, test: unittest.TestCase) -> None:
        self.note(test, "passed")
        super().addSuccess(test)

    def addFailure(self, test: unittest.TestCase, err: object) -> None:
        self.note(test, "failed")
        super().addFailure(test, err)  # type: ignore[arg-type]

    def addError(self, test: unittest.TestCase, err: object) -> None:
        self.note(test, "error")
        super().addError(test, err)  # type: ignore[arg-type]

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self.note(test, "skipped")
        super().addSkip(test, reason)

    def addExpectedFailure(self, test: unittest.TestCase, err: object) -> None:
        self.note(test, "expected failure")
        super().addExpectedFailure(test, err)  # type: ignore[arg-type]

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        self.note(test, "unexpected success")
        super().addUnexpectedSuccess(test)


if __name__ == "__main__":
    runner = unittest.TextTestRunner(resultclass=Result, verbosity=1)
    try:
        suite.main(module=None, argv=["mpi4py", *LEFT_OUT, *ARGUMENTS], testRunner=runner)
    finally:
        write("json", json.dumps(OUTCOMES, indent=0))
