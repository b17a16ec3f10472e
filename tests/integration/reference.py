"""References: other transports, with which unimem is compared. A failure of a reference is not a failure of the test.

libfabric's shm hangs or fails on files in /dev/shm that a killed process left there, once its pid is in use again. So a
reference has a /dev/shm of its own, a fresh one for each attempt, and leaves nothing on the host. A reference that
fails nevertheless is tried once more; then it counts as failed, and the test goes on without it.
"""

import functools
import os
import subprocess
from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest
from harness import BUILD, Launcher

Result = TypeVar("Result")
ATTEMPTS = 2
# Other users than root get a user namespace, in which they are root. Open MPI refuses to run as root, unless it is told
# that this is meant.
UNSHARE = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
FRESH = 'mount -t tmpfs -o mode=1777 tmpfs /dev/shm && exec "$0" "$@"'
ROOT_IS_MEANT = ["env", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"]


@functools.cache
def own_dev_shm() -> tuple[Sequence[str], str]:
    """The prefix that runs a command in a fresh /dev/shm, and words for it; the prefix is empty if that is refused."""
    command = [*UNSHARE, "sh", "-c", FRESH, *ROOT_IS_MEANT]
    tried = subprocess.run([*command, "true"], capture_output=True, text=True, timeout=60, check=False)
    if tried.returncode == 0:
        return command, "in a fresh /dev/shm of its own"
    why = " ".join(tried.stderr.split()) or f"exit status {tried.returncode}"
    return [], f"in the host's /dev/shm, because it may have none of its own ({why})"


class Reference:
    """failure: empty, or one line that says how it failed. Once failed, it is not run again, because it may hang."""

    def __init__(self, name: str, launcher: Launcher) -> None:
        self.name = name
        self.launcher = launcher
        self.failure = ""

    def attempt(self, run: Callable[[Launcher], Result]) -> Result | None:
        """Calls run, which starts the reference under the launcher that it gets, and raises an error if that fails.
        Returns its result, or None if the reference has failed."""
        wrapper, where = own_dev_shm()
        errors: list[str] = []
        while not self.failure:
            try:
                return run(self.launcher.inside(wrapper))
            except (AssertionError, OSError, subprocess.SubprocessError) as error:
                self.launcher.kill_leftovers()
                errors.append(str(error))
            if len(errors) == ATTEMPTS:
                self.failure = f"the reference, {self.name}, failed {ATTEMPTS} times {where}: {self.log(errors)}"
        return None

    def result(self, run: Callable[[Launcher], Result]) -> Result:
        """The same for a test that has nothing to compare with if the reference has failed: the test is skipped."""
        result = self.attempt(run)
        if result is None:
            pytest.skip(self.failure)
        return result

    def log(self, errors: Sequence[str]) -> str:
        """Writes the errors into a log; returns the first line of the last one, and where the log is."""
        log = BUILD / "results" / f"reference-{self.name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a", encoding="utf-8") as file:
            file.writelines(f"---- {self.name}, attempt {n}\n{error}\n" for n, error in enumerate(errors, 1))
        return f"{errors[-1].splitlines()[0]}; details: {log}"
