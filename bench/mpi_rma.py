#!/usr/bin/env python3
"""MPI one-sided operations over unimem, MPICH's posix and ucx, and libfabric's shm, interleaved in one run.

Every repetition runs bench/mpi_rma once over each transport, ranks pinned to two processors, so that all see the same
machine. Prints medians (and the spread) of the repetitions' medians, and the ratio to unimem; writes them to
build/results/mpi_rma.csv. The level that unimem's window got is printed with it. No verdict: performance is compared by
people, not by tests.

Needs ./quickstart's set-up (build, .venv).
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

ROOT = pathlib.Path(__file__).resolve().parent.parent
OURS = {"FI_PROVIDER_PATH": None, "FI_PROVIDER": "unimem", "MPIR_CVAR_CH4_NETMOD": "ofi", "MPIR_CVAR_NOLOCAL": "1",
        "FI_UNIMEM_MPICH_ATOMICS": "1", "FI_LOG_LEVEL": "info", "FI_LOG_PROV": "unimem"}
TRANSPORTS = {
    "unimem": OURS,
    "posix": {},
    "shm": {"FI_PROVIDER": "shm", "MPIR_CVAR_CH4_NETMOD": "ofi", "MPIR_CVAR_NOLOCAL": "1"},
    "ucx": {"MPIR_CVAR_CH4_NETMOD": "ucx", "MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "self,posix,sysv,cma"},
}
LINE = re.compile(r"^(latency|bandwidth) (\w+) (\d+) ([\d.]+)(?: ([\d.]+))?$")
LEVEL = re.compile(r"registration of (\d+) bytes at \S+ key \S+ (\w+)")


def run(options: argparse.Namespace, transport: str, window: int, create: bool) -> tuple[dict, str]:
    """One run: {(kind, operation, bytes): value} and the level of unimem's window. Empty when it failed."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("FI_", "MPIR_CVAR_", "UCX_"))}
    env.update(TRANSPORTS[transport])
    if transport == "unimem":
        env["FI_PROVIDER_PATH"] = str(options.build)
    command = [str(options.venv / "bin/mpiexec"), "-n", "2", "-bind-to", "core", str(options.program), "--bytes", str(window), "--min", str(options.min),
               "--max", str(options.max), "--batches", str(options.batches), *(["--create"] if create else [])]
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=options.timeout, check=False)
    except subprocess.TimeoutExpired:
        return {}, ""
    text = done.stdout + done.stderr
    if done.returncode or "data ok" not in text:
        print(f"{transport}, window {window}: failed: {text[-400:]}", file=sys.stderr)
        return {}, ""
    rows = (m for m in map(LINE.match, done.stdout.splitlines()) if m)
    values = {(m[1], m[2], int(m[3])): float(m[5] or m[4]) for m in rows}
    levels = {m[2] for m in LEVEL.finditer(text) if int(m[1]) == window}
    return values, "/".join(sorted(levels))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--venv", type=pathlib.Path, default=ROOT / ".venv")
    parser.add_argument("--transports", default="unimem,posix,shm,ucx")
    parser.add_argument("--windows", default="4096,262144,16777216", help="bytes")
    parser.add_argument("--min", type=int, default=8, help="smallest put and get, bytes")
    parser.add_argument("--max", type=int, default=65536, help="largest operation, bytes")
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--timeout", type=float, default=120)
    options = parser.parse_args()
    results = ROOT / "build/results"
    results.mkdir(parents=True, exist_ok=True)
    options.program = results / "mpi_rma"
    subprocess.run([options.venv / "bin/mpicc", "-std=gnu17", "-O2", "-o", options.program, ROOT / "bench/mpi_rma.c"], check=True)
    transports = options.transports.split(",")
    rows = []
    for window in map(int, options.windows.split(",")):
        for create in (False, True):
            samples: dict[str, dict] = {t: {} for t in transports}
            level = "?"
            for _ in range(options.repeat):
                for transport in transports:
                    values, found = run(options, transport, window, create)
                    level = found or level
                    for key, value in values.items():
                        samples[transport].setdefault(key, []).append(value)
            kind = "MPI_Win_create" if create else "MPI_Win_allocate"
            print(f"\n{kind}, {window} bytes; unimem's level: {level}; median (minimum–maximum) of {options.repeat}, "
                  f"/ = ratio to {transports[0]}")
            for key in sorted(samples[transports[0]], key=lambda k: (k[0] != "latency", k[1], k[2])):
                base = statistics.median(samples[transports[0]][key])
                cells = []
                for transport in transports:
                    got = samples[transport].get(key)
                    if not got:
                        cells.append(f"{transport} -")
                        continue
                    mid = statistics.median(got)
                    cells.append(f"{transport} {mid:.3g} ({min(got):.3g}–{max(got):.3g}) /{mid / base:.2f}")
                    rows.append([kind, window, level, *key, transport, mid, min(got), max(got), mid / base])
                unit = "us" if key[0] == "latency" else "MB/s"
                print(f"  {key[0]:9} {key[1]:3} {key[2]:6} B, {unit:4}  " + "   ".join(cells))
    with open(results / "mpi_rma.csv", "w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(["window", "bytes", "level", "kind", "operation", "size", "transport", "median", "min", "max", "ratio"])
        writer.writerows(rows)
    print(f"\ntable: {results / 'mpi_rma.csv'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
