"""One run of one peer: a command that prints figures, or an error in a few words. A run that hangs is ended."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

FIGURE = re.compile(r"^figure (\w+) (\w+) (\S+)$", re.MULTILINE)
# Variables that would change what is measured, if the user's shell has set them.
FOREIGN = re.compile(r"^(FI_|MPIR_|MPICH_|UCX_|I_MPI_|OMPI_|PRTE_|PMIX_|PMI_|HYDRA_|LD_PRELOAD$)")
OWN_WORDS = re.compile(r"(?:measure|process \d+ of \d+|wakeup): (.*)")  # of the programs in bench/drivers
MARKER = "UNIMEM_COMPARE"
NOT_OFFERED = 77  # bench/drivers/wakeup.c

Figure = tuple[str, str, float]  # metric, case, value


@dataclass
class Outcome:
    """With an error there may be figures, too: of the cases before the error."""

    figures: list[Figure] = field(default_factory=list)
    error: str = ""


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not FOREIGN.match(name)} | dict(extra)


def reason(status: int, out: str, err: str) -> str:
    """The line that says most: the drivers' first own error, else the first line with an error word, else the first."""
    if status == NOT_OFFERED:
        return "not offered"
    lines = [line.strip() for line in (err + "\n" + out).splitlines() if line.strip()]
    ours = [match[1] for line in lines if (match := OWN_WORDS.search(line))]
    told = ours or [line for line in lines if re.search(r"error|fail|abort|cannot|refused|hung", line, re.IGNORECASE)] or lines
    said = told[0] if told else "nothing said"
    how = f"signal {-status}" if status < 0 else f"status {status}"
    return said[:200] if ours else f"{how}: {said[:180]}"


def marked(value: str) -> list[int]:
    """The living processes that have the marker in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"{MARKER}={value}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue  # it ended, or is another user's
    return found


def end_all(value: str) -> None:
    """Kills all processes with the marker: a launcher that is killed leaves its ranks behind."""
    for _ in range(20):
        left = marked(value)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if not left:
            return
        time.sleep(0.05)


def run(command: Sequence[str | Path], env: Mapping[str, str], timeout: float) -> Outcome:
    """Runs a program that prints figures."""
    marker = uuid.uuid4().hex
    try:
        process = subprocess.Popen([str(word) for word in command], env=environment(env) | {MARKER: marker}, text=True,
                                   errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, start_new_session=True)  # fmt: skip
    except OSError as error:
        return Outcome(error=f"{command[0]}: {error.strerror}")
    ended = True
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        ended = False
        end_all(marker)
        try:
            out, err = process.communicate(timeout=30)
        except subprocess.TimeoutExpired:  # a process that cannot be ended has the pipes
            out = err = ""
    except BaseException:  # Ctrl-C leaves nothing behind
        end_all(marker)
        raise
    figures = [(metric, case, float(value)) for metric, case, value in FIGURE.findall(out)]
    if not ended:
        return Outcome(figures, f"no end after {timeout:g} s")
    if process.returncode:
        end_all(marker)
        return Outcome(figures, reason(process.returncode, out, err))
    return Outcome(figures, "" if figures else "no figures: " + reason(0, out, err))
