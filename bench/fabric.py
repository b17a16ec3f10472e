#!/usr/bin/env python3
"""Latency and bandwidth at fabric level, unimem against libfabric's shm and sm2, interleaved in one run.

Every repetition runs each provider once, one process pinned to each of two processors, so that all see the same machine.
Prints medians, minima, spread, and the ratio to the first provider; writes them to build/results/fabric.csv. No verdict:
performance is compared by people, not by tests.

Needs the programs that bench/fabtests.sh builds.
"""
from __future__ import annotations

import argparse
import csv
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROW = re.compile(r"^(\S+)\s+\S+\s+\S+\s+\S+\s+([\d.]+)\s+([\d.]+)\s+")


def run_pair(prefix: pathlib.Path, provider: str, test: str, size: int, iterations: int, timeout: float) -> float | None:
    """One run of a fabtests program: microseconds per transfer as the client prints it, or None when it failed."""
    env = dict(os.environ, LD_LIBRARY_PATH=str(prefix / "lib"), FI_PROVIDER_PATH=str(ROOT / "build"))
    port = random.randint(20000, 60000)
    args = [str(prefix / "bin" / test), "-p", provider, f"-E={port}", "-S", str(size), "-I", str(iterations)]
    server = subprocess.Popen(["taskset", "-c", "0", *args], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(0.3)
        client = subprocess.run(["taskset", "-c", "1", *args, "127.0.0.1"], env=env, capture_output=True, text=True,
                                timeout=timeout, check=False)
        rows = [m for m in map(ROW.match, client.stdout.splitlines()) if m]
        return float(rows[-1].group(3)) if rows and client.returncode == 0 else None
    except subprocess.TimeoutExpired:
        return None
    finally:
        server.terminate()
        server.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prefix", type=pathlib.Path, default=pathlib.Path.home() / ".cache/unimem/fabtests")
    parser.add_argument("--providers", default="unimem,shm,sm2")
    parser.add_argument("--test", default="fi_rdm_tagged_pingpong", help="a fabtests program (fi_rdm_tagged_bw, ...)")
    parser.add_argument("--sizes", default="8,64,1024,4096,16384,65536,1048576", help="bytes")
    parser.add_argument("--repeat", type=int, default=7)
    options = parser.parse_args()
    if not (options.prefix / "bin" / options.test).exists():
        print(f"fabric.py: no {options.test} in {options.prefix}/bin: run bench/fabtests.sh first", file=sys.stderr)
        return 2
    providers = options.providers.split(",")
    rows = []
    print(f"{options.test}: microseconds per transfer, median (minimum–maximum) of {options.repeat}, and ratio to {providers[0]}")
    for size in map(int, options.sizes.split(",")):
        iterations = 20000 if size <= 4096 else 5000 if size <= 65536 else 500
        samples: dict[str, list[float]] = {p: [] for p in providers}
        for _ in range(options.repeat):
            for provider in providers:
                value = run_pair(options.prefix, provider, options.test, size, iterations, 60)
                if value is not None:
                    samples[provider].append(value)
        cells = []
        for provider in providers:
            s = samples[provider]
            if not s:
                cells.append(f"{provider} failed")
                continue
            ratio = statistics.median(s) / statistics.median(samples[providers[0]]) if samples[providers[0]] else float("nan")
            cells.append(f"{provider} {statistics.median(s):.3f} ({min(s):.3f}–{max(s):.3f}) ×{ratio:.2f}")
            rows.append([options.test, size, provider, statistics.median(s), min(s), max(s), len(s)])
        print(f"{size:>9}  " + "   ".join(cells), flush=True)
    results = ROOT / "build" / "results"
    results.mkdir(parents=True, exist_ok=True)
    with open(results / "fabric.csv", "w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(["test", "bytes", "provider", "median_us", "min_us", "max_us", "runs"])
        writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
