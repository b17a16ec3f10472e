#!/usr/bin/env python3
"""Large messages by every way there is, interleaved: what the machine can do, unimem before and after, each of its two ways
alone, libfabric's shm, and the same under MPICH and Intel MPI beside what they bring themselves.

  bench/bodies.py                                           # this build, at libfabric's level
  bench/bodies.py --before OLD_BUILD --mpich .venv --impi .venv-impi   # all of it
  bench/bodies.py --heap                                    # with the shareable heap, too

Every repetition runs each way once, two processes pinned to a processor each. Prints for each size the median of the
repetitions, then what is to be held against what: `auto` (no variable set) against the better of the two forced ways, and,
at libfabric's level, against a bare ring and shm. Writes build/results/bodies.csv. No verdict: people compare that.
--priority N runs everything under SCHED_RR (chrt; needs root): on a machine that does other work as well, nothing
else gives figures. Keep --seconds small then.
"""
from __future__ import annotations

import argparse
import csv
import os
import pathlib
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

ROOT = pathlib.Path(__file__).resolve().parent.parent
FABRIC = ["latency_us", "warm_mb_s", "cold_mb_s"]
MPI = ["latency_us", "bandwidth_mb_s"]
PINGPONG = re.compile(r"^ *(\d+) +[\d.]+ +([\d.]+) +([\d.]+) +ok$", re.M)
UNSET = ("FI_PROVIDER", "FI_PROVIDER_PATH", "FI_UNIMEM_COPY", "MPIR_CVAR_NOLOCAL", "MPIR_CVAR_CH4_NETMOD", "I_MPI_FABRICS")


@dataclass
class Way:
    """One thing to run, and what it said: values by size and column, one for each repetition."""

    name: str
    command: list[str]
    env: dict[str, str]
    columns: list[str]
    said: dict[tuple[int, str], list[float]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    def run(self, before: list[str], timeout: float) -> None:
        """Runs it once."""
        env = {k: v for k, v in os.environ.items() if k not in UNSET} | self.env
        try:
            done = subprocess.run([*before, *self.command], env=env, capture_output=True, text=True, timeout=timeout, check=False)
        except subprocess.TimeoutExpired:
            self.failed.append(f"no end after {timeout:g} s")
            return
        rows = PINGPONG.findall(done.stdout) if self.columns is MPI else [line.split() for line in done.stdout.splitlines()]
        for size, *values in rows:
            for column, value in zip(self.columns, values, strict=True):
                self.said.setdefault((int(size), column), []).append(float(value))
        if done.returncode or not rows:
            words = (done.stderr.strip() or "nothing said").splitlines()
            self.failed.append(f"status {done.returncode}: {words[0]}")

    def value(self, size: int, column: str) -> float | None:
        """The median, or None."""
        values = self.said.get((size, column))
        return statistics.median(values) if values else None


def ours(build: pathlib.Path, copy: str | None) -> dict[str, str]:
    """What selects unimem, and fixes its choice."""
    return {"FI_PROVIDER_PATH": str(build), "FI_PROVIDER": "unimem"} | ({"FI_UNIMEM_COPY": copy} if copy else {})


def variants(options: argparse.Namespace) -> Iterator[tuple[str, dict[str, str]]]:
    """unimem, by name."""
    if options.before:
        yield "before", ours(options.before.resolve(), None)
    yield "auto", ours(options.build, None)
    yield "kernel", ours(options.build, "1")
    yield "ring", ours(options.build, "0")
    if options.heap:
        heap = {"LD_PRELOAD": f"{options.build / 'libunimem-heap.so'} libjemalloc.so.2"}
        yield "heap", ours(options.build, None) | heap
        yield "mapped", ours(options.build, None) | heap | {"FI_UNIMEM_MAPPED": "1"}


def fabric_ways(options: argparse.Namespace) -> list[Way]:
    """At libfabric's level."""
    program = [str(options.build / "bench" / "bodies"), "--sizes", options.sizes, "--seconds", str(options.seconds),
               "--cpus", options.cpus, *(["--compute", str(options.compute)] if options.compute else []), "--way"]
    bare = ["ring", "readv", *(["one", "both"] if options.heap else [])]
    ways = [Way(f"bare {way}", [*program, way], {}, FABRIC) for way in bare]
    ways += [Way(name, [*program, "unimem"], env, FABRIC) for name, env in variants(options)]
    return [*ways, Way("shm", [*program, "shm"], {"FI_PROVIDER": "shm"}, FABRIC)]


def pingpong(options: argparse.Namespace) -> list[str]:
    """bench/mpi_pingpong.c, built by MPICH's compiler: Intel MPI runs it, too."""
    program = options.build / "bench" / "mpi_pingpong_bodies"
    mpicc = options.mpich / "bin" / "mpicc"
    subprocess.run([mpicc, "-O2", "-Wl,--enable-new-dtags", "-o", program, ROOT / "bench" / "mpi_pingpong.c"], check=True)
    sizes = [int(s) for s in options.sizes.split(",")]
    return [str(program), "--min", str(min(sizes)), "--max", str(max(sizes)), "--seconds", str(options.seconds)]


def mpich_ways(options: argparse.Namespace) -> list[Way]:
    """Over MPICH; its own shared memory is `posix`."""
    command = [str(options.mpich / "bin" / "mpiexec"), "-bind-to", "user:" + options.cpus, "-n", "2", *pingpong(options)]
    ofi = {"MPIR_CVAR_CH4_NETMOD": "ofi", "MPIR_CVAR_NOLOCAL": "1"}
    ways = [Way(name, command, ofi | env, MPI) for name, env in variants(options)]
    return [*ways, Way("shm", command, ofi | {"FI_PROVIDER": "shm"}, MPI), Way("own", command, {}, MPI)]


def impi_ways(options: argparse.Namespace) -> list[Way]:
    """Over Intel MPI; `own` is its shared memory."""
    mpi = options.impi.resolve()
    command = [str(mpi / "bin" / "mpiexec.hydra"), "-n", "2", *pingpong(options)]
    base = {"LD_LIBRARY_PATH": str(mpi / "lib"), "I_MPI_PIN_PROCESSOR_LIST": options.cpus, "I_MPI_FABRICS": "ofi"}
    ways = [Way(name, command, base | env | {"I_MPI_OFI_PROVIDER": "unimem"}, MPI) for name, env in variants(options)]
    return [*ways, Way("shm", command, base | {"FI_PROVIDER": "shm", "I_MPI_OFI_PROVIDER": "shm"}, MPI),
            Way("own", command, base | {"I_MPI_FABRICS": "shm"}, MPI)]


def better(column: str, values: list[float | None]) -> float | None:
    """The best of them: the least time, the most bytes a second."""
    there = [v for v in values if v]
    return (min if column.endswith("_us") else max)(there) if there else None


def ratio(column: str, value: float | None, to: float | None) -> str:
    """How many times as good, 1 or more: as good."""
    if not value or not to:
        return "-"
    return f"{to / value if column.endswith('_us') else value / to:.2f}"


def show(level: str, ways: list[Way], sizes: list[int]) -> list[list[object]]:
    """Prints the tables of a level; returns the rows of the file."""
    by_name = {w.name: w for w in ways}
    rows: list[list[object]] = []
    limits = ["bare ring", "shm"] if "bare ring" in by_name else []
    for column in ways[0].columns:
        print(f"\n{level}: {column}, median; then auto against the better forced way"
              + (", and against the better of bare ring and shm" if limits else ""))
        print(f"{'bytes':>9}" + "".join(f"{w.name:>12}" for w in ways) + f"{'/forced':>10}" + (f"{'/limit':>10}" if limits else ""))
        for size in sizes:
            values = {w.name: w.value(size, column) for w in ways}
            if not any(values.values()):
                continue
            cells = "".join(f"{v:12.1f}" if v else f"{'-':>12}" for v in values.values())
            forced = ratio(column, values["auto"], better(column, [values["kernel"], values["ring"]]))
            limit = ratio(column, values["auto"], better(column, [values[n] for n in limits])) if limits else ""
            print(f"{size:>9}{cells}{forced:>10}{limit:>10}", flush=True)
            rows += [[level, size, column, w.name, *([statistics.median(s), min(s), max(s), len(s)])] for w in ways
                     if (s := w.said.get((size, column)))]
    for w in ways:
        if w.failed:
            print(f"{level}, {w.name}: {len(w.failed)} runs failed: {w.failed[-1]}")
    return rows


def main() -> int:
    """Measures, prints, writes; 1 if a run of this build failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--before", type=pathlib.Path, help="folder with the libunimem-fi.so to compare with")
    parser.add_argument("--mpich", type=pathlib.Path, help="virtual environment with MPICH")
    parser.add_argument("--impi", type=pathlib.Path, help="virtual environment with Intel MPI (needs --mpich for its compiler)")
    parser.add_argument("--heap", action="store_true", help="also with the shareable heap: by choice, and always mapped")
    parser.add_argument("--sizes", default="16384,32768,65536,131072,262144,524288,1048576,2097152,4194304")
    parser.add_argument("--seconds", type=float, default=0.05, help="for each part of a size (default: %(default)s)")
    parser.add_argument("--compute", type=float, help="the sender computes so many microseconds: see bench/bodies.c")
    parser.add_argument("--cpus", default="0,1")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--priority", type=int, help="SCHED_RR priority")
    parser.add_argument("--no-fabric", action="store_true")
    options = parser.parse_args()
    options.build = options.build.resolve()
    sizes = [int(s) for s in options.sizes.split(",")]
    before = ["chrt", "-r", str(options.priority)] if options.priority else []
    levels: dict[str, list[Way]] = {} if options.no_fabric else {"fabric": fabric_ways(options)}
    if options.mpich:
        options.mpich = options.mpich.resolve()
        levels["MPICH"] = mpich_ways(options)
    if options.impi:
        levels["Intel MPI"] = impi_ways(options)
    for _ in range(options.repeat):
        for ways in levels.values():
            for way in ways:
                way.run(before, 120)
    rows = [row for level, ways in levels.items() for row in show(level, ways, sizes)]
    results = options.build / "results"
    results.mkdir(parents=True, exist_ok=True)
    with open(results / "bodies.csv", "w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(["level", "bytes", "what", "way", "median", "min", "max", "runs"])
        writer.writerows(rows)
    print(f"written to {results / 'bodies.csv'}")
    return 1 if any(w.failed for ways in levels.values() for w in ways if w.name in ("auto", "kernel", "ring")) else 0


if __name__ == "__main__":
    sys.exit(main())
