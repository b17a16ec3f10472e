#!/usr/bin/env python3
"""Random updates (GUPS) and graph traversal (SSCA2) with one-sided operations, unimem against libfabric's shm, interleaved.

Every repetition runs each provider once, so that all see the same machine. Prints medians, minima, maxima and the ratio
to the first provider; writes them to build/results/onesided.csv. A run that ends badly counts as failed and its first
words are shown: both programs check every word they have computed. No verdict on speed: people compare that.

Which libfabric: --libfabric names the folder of the libfabric.so.1 to run with (the system's if absent). libfabric
1.17's shm crashes in atomics; that of MPICH's wheel (.venv/lib/mpich) does not.
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
VALUE = re.compile(r"^(gups|teps) ([\d.e+-]+)$", re.M)


class Bench:
    """One program with its arguments, and what it measures."""

    def __init__(self, build: pathlib.Path, name: str, arguments: list[str]):
        self.name = name
        self.command = [str(build / "bench" / name), *arguments]

    def run(self, provider: str, environment: dict[str, str], timeout: float) -> float | str:
        """The measured value, or why there is none."""
        try:
            done = subprocess.run([*self.command, "-p", provider], env=environment, capture_output=True, text=True,
                                  timeout=timeout, check=False)
        except subprocess.TimeoutExpired:
            return f"no end after {timeout:g} s"
        found = VALUE.search(done.stdout)
        if done.returncode or not found or "errors 0" not in done.stdout:
            words = (done.stderr.strip() or done.stdout.strip() or "nothing said").splitlines()
            return f"status {done.returncode}: {words[0]}"
        return float(found[2])


def environment_for(provider: str, build: pathlib.Path, libfabric: str | None) -> dict[str, str]:
    """libfabric finds loadable providers of its own only while FI_PROVIDER_PATH is not set."""
    env = {k: v for k, v in os.environ.items() if k not in ("FI_PROVIDER_PATH", "FI_PROVIDER")}
    if provider == "unimem":
        env["FI_PROVIDER_PATH"] = str(build)
    if libfabric:
        env["LD_LIBRARY_PATH"] = libfabric
    return env


def measure(bench: Bench, options: argparse.Namespace) -> list[list[object]]:
    """Runs it over all providers, interleaved; prints one line a provider; returns the rows of the table."""
    providers = options.providers.split(",")
    samples: dict[str, list[float]] = {p: [] for p in providers}
    failures: dict[str, list[str]] = {p: [] for p in providers}
    for _ in range(options.repeat):
        for provider in providers:
            env = environment_for(provider, options.build, options.libfabric)
            value = bench.run(provider, env, options.timeout)
            (failures if isinstance(value, str) else samples)[provider].append(value)  # type: ignore[arg-type]
    rows: list[list[object]] = []
    first = statistics.median(samples[providers[0]]) if samples[providers[0]] else float("nan")
    for provider in providers:
        s = samples[provider]
        if s:
            mid = statistics.median(s)
            print(f"  {provider:<16} {mid:<12.6g} ({min(s):.6g}–{max(s):.6g})  ×{mid / first:.3f}", flush=True)
            rows.append([bench.name, provider, mid, min(s), max(s), mid / first, len(s), len(failures[provider])])
        if failures[provider]:
            print(f"  {provider:<16} {len(failures[provider])} of {options.repeat} runs failed: {failures[provider][-1]}")
            if not s:
                rows.append([bench.name, provider, "", "", "", "", 0, len(failures[provider])])
    return rows


def main() -> int:
    """Measures, prints, writes; 1 if the first provider failed in any run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--providers", default="unimem,shm", help="the first one is what the others are compared with; "
                        "for example unimem,shm,tcp;ofi_rxm (default: %(default)s)")
    parser.add_argument("--libfabric", help="folder of the libfabric.so.1 to run with")
    parser.add_argument("--processes", default="2")
    parser.add_argument("--log2-words", default="18", help="size of GUPS' table (default: %(default)s)")
    parser.add_argument("--scale", default="12", help="2^SCALE vertices in SSCA2's graph (default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--timeout", type=float, default=120)
    options = parser.parse_args()
    options.build = options.build.resolve()
    benches = [("billions of updates a second", Bench(options.build, "gups",
                                                      ["-n", options.processes, "-s", options.log2_words])),
               ("edges a second", Bench(options.build, "ssca", ["-n", options.processes, "-s", options.scale]))]
    rows: list[list[object]] = []
    for unit, bench in benches:
        if not pathlib.Path(bench.command[0]).exists():
            print(f"onesided.py: no {bench.command[0]}: build first (meson compile -C build)", file=sys.stderr)
            return 2
        print(f"{bench.name}: {unit}, {options.processes} processes: median (minimum–maximum) of {options.repeat}, and "
              f"ratio to {options.providers.split(',')[0]}")
        rows += measure(bench, options)
    results = options.build / "results"
    results.mkdir(parents=True, exist_ok=True)
    with open(results / "onesided.csv", "w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(["bench", "provider", "median", "min", "max", "ratio", "runs", "failed"])
        writer.writerows(rows)
    print(f"written to {results / 'onesided.csv'}")
    return 1 if any(row[1] == options.providers.split(",")[0] and row[7] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
