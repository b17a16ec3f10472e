"""Runs mpi4py's own test suite and records what became of every test, one JSON file per rank.

  mpi4py_suite.py TEST_DIRECTORY OUTPUT_PREFIX

Writes OUTPUT_PREFIX.RANK.json: {"finished": bool, "running": last test begun, "outcomes": {test: outcome}}. It is also
written while the suite runs, so that a crash or a hang shows where it happened. Spawn and dynproc are left out: they
start further processes, which is the process manager's affair.
"""

import json
import sys
import time
import unittest
from pathlib import Path

TEST_DIRECTORY, PREFIX = Path(sys.argv[1]), sys.argv[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(TEST_DIRECTORY))

import main as suite  # noqa: E402  (mpi4py's test/main.py)


class Recorder:
    """The outcomes of one rank, and their file."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}
        self.running = ""
        self.finished = False
        self.saved = 0.0

    def save(self, at_least_every: float = 0) -> None:
        now = time.monotonic()
        if now - self.saved < at_least_every:
            return
        from mpi4py import MPI

        self.saved = now
        path = Path(f"{PREFIX}.{MPI.COMM_WORLD.Get_rank()}.json")
        state = {"finished": self.finished, "running": self.running, "outcomes": self.outcomes}
        new = path.with_suffix(".new")
        new.write_text(json.dumps(state, indent=0))
        new.rename(path)  # a reader never sees half a file


RECORDER = Recorder()


class Result(unittest.TextTestResult):
    """Notes every outcome; a test with subtests fails when one of them does."""

    def startTest(self, test: unittest.TestCase) -> None:
        RECORDER.running = test.id()
        RECORDER.outcomes[test.id()] = "running"
        RECORDER.save(at_least_every=0.5)
        super().startTest(test)

    def note(self, test: object, outcome: str) -> None:
        RECORDER.outcomes[test.id()] = outcome  # type: ignore[attr-defined]

    def stopTest(self, test: unittest.TestCase) -> None:
        if RECORDER.outcomes[test.id()] == "running":  # unittest reports no success when a subtest failed
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
        suite.main(module=None, argv=["mpi4py", "-e", "spawn", "-e", "dynproc"], testRunner=runner)
    finally:
        RECORDER.finished = True
        RECORDER.save()
