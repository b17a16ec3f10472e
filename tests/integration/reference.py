"""References: transports of others beside which ours is seen. What they do wrong is not our failure.

libfabric's shm hangs or fails on files in /dev/shm that a killed process left there, once its pid is in use again. So a
reference has a /dev/shm of its own, a fresh one for each attempt, and nothing stays of it on the host. One that fails all
the same is tried once more; then it counts as failed, and the test goes on without it.
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
# Not for root: a user namespace, in which the user is root. Open MPI would refuse that.
UNSHARE = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
FRESH = 'mount -t tmpfs -o mode=1777 tmpfs /dev/shm && exec "$0" "$@"'
ROOT_IS_MEANT = ["env", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"]


@functools.cache
def own_dev_shm() -> tuple[Sequence[str], str]:
    """What runs a command in a fresh /dev/shm, and how that is called. Nothing, where the system does not permit it."""
    command = [*UNSHARE, "sh", "-c", FRESH, *ROOT_IS_MEANT]
    tried = subprocess.run([*command, "true"], capture_output=True, text=True, timeout=60, check=False)
    if tried.returncode == 0:
        return command, "in a fresh /dev/shm of its own"
    why = " ".join(tried.stderr.split()) or f"exit status {tried.returncode}"
    return [], f"in the host's /dev/shm, because it may have none of its own ({why})"


class Reference:
    """failure: empty, or one line that says what became of it. It stays failed: a hang is waited for only twice."""

    def __init__(self, name: str, launcher: Launcher) -> None:
        self.name = name
        self.launcher = launcher
        self.failure = ""

    def attempt(self, run: Callable[[Launcher], Result]) -> Result | None:
        """run starts the reference under the launcher that it gets, and raises an error if it does not end well."""
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
        """The same for a test that has nothing to compare with when the reference failed: it is left out."""
        result = self.attempt(run)
        if result is None:
            pytest.skip(self.failure)
        return result

    def log(self, errors: Sequence[str]) -> str:
        """Writes down what went wrong; returns the beginning, and where the rest is."""
        log = BUILD / "results" / f"reference-{self.name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a", encoding="utf-8") as file:
            file.writelines(f"---- {self.name}, attempt {n}\n{error}\n" for n, error in enumerate(errors, 1))
        return f"{errors[-1].splitlines()[0]}; details: {log}"
