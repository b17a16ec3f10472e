#!/usr/bin/env python3
"""How long a sleeper takes to wake up, unimem against libfabric's shm, interleaved in one run.

Every repetition runs bench/wakeup once for each provider and kind (cq: fi_cq_sread and a message; cntr: fi_cntr_wait and a
write that a counter of remote writes sees), so that all see the same machine. Prints the median of each figure over the
repetitions and the ratio of the medians to the first provider; writes them to build/results/wakeup.csv. Before that, once:
what a sleeper costs that nothing wakes for --idle seconds (a part of a processor, and its wake-ups a second). No verdict:
performance is compared by people, not by tests.

Needs a build (./quickstart, or meson).
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
FIGURES = ("min_us", "median_us", "p90_us", "p99_us", "max_us", "cpu")
IDLE_FIGURES = ("seconds", "cpu", "wakeups_per_s")
FIGURE = re.compile(r"(\w+)=([\d.]+)")
NOT_OFFERED = 77


def run(build: pathlib.Path, provider: str, kind: str, words: list[str], names: tuple[str, ...],
        timeout: float) -> dict[str, float] | str:
    """The figures of one run, or why there are none."""
    env = dict(os.environ, FI_PROVIDER_PATH=str(build))
    try:
        done = subprocess.run([build / "bench" / "wakeup", provider, kind, *words], env=env, capture_output=True,
                              text=True, timeout=60 + timeout, check=False)
    except subprocess.TimeoutExpired:
        return "hangs"
    if done.returncode == NOT_OFFERED:
        return "does not offer it"
    figures = {name: float(value) for name, value in FIGURE.findall(done.stdout)}
    if done.returncode != 0 or set(figures) != set(names):
        return "failed: " + (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    return figures


def print_idle(build: pathlib.Path, providers: list[str], kinds: list[str], seconds: int) -> None:
    print(f"blocked for {seconds} s while nothing comes: part of a processor, wake-ups a second")
    for kind in kinds:
        for provider in providers:
            figures = run(build, provider, kind, ["idle", str(seconds)], IDLE_FIGURES, seconds)
            text = figures if isinstance(figures, str) else f"{figures['cpu']:11.5f}{figures['wakeups_per_s']:11.2f}"
            print(f"{kind:5}{provider:9}{text}")
    print()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--providers", default="unimem,shm")
    parser.add_argument("--kinds", default="cq,cntr")
    parser.add_argument("--count", type=int, default=1000, help="wake-ups in one run")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--idle", type=int, default=5, help="seconds of a sleep that nothing ends; 0: not measured")
    options = parser.parse_args()
    if not (options.build / "bench" / "wakeup").exists():
        print(f"wakeup.py: no bench/wakeup in {options.build}: run ./quickstart first", file=sys.stderr)
        return 2
    providers, kinds = options.providers.split(","), options.kinds.split(",")
    samples: dict[tuple[str, str], list] = {(k, p): [] for k in kinds for p in providers}
    if options.idle:
        print_idle(options.build, providers, kinds, options.idle)
    for _ in range(options.repeat):
        for kind in kinds:
            for provider in providers:
                samples[kind, provider].append(run(options.build, provider, kind, [str(options.count)], FIGURES,
                                                   options.count / 100))
    rows, base = [], {}
    print(f"medians of {options.repeat} runs of {options.count} wake-ups; cpu: of a processor, by the sleeper")
    print(f"{'':14}" + "".join(f"{name:>11}" for name in FIGURES) + "      ratio")
    for (kind, provider), runs in samples.items():
        good = [r for r in runs if isinstance(r, dict)]
        bad = next((r for r in runs if isinstance(r, str)), None)
        if not good:
            print(f"{kind:5}{provider:9}{bad}")
            continue
        middle = {name: statistics.median(r[name] for r in good) for name in FIGURES}
        base.setdefault(kind, middle["median_us"])
        print(f"{kind:5}{provider:9}" + "".join(f"{middle[name]:11.4g}" for name in FIGURES) +
              f"{middle['median_us'] / base[kind]:11.2f}" + (f"   {len(runs) - len(good)} runs: {bad}" if bad else ""))
        rows.append([kind, provider, *(middle[name] for name in FIGURES), len(good)])
    results = options.build / "results"
    results.mkdir(parents=True, exist_ok=True)
    with open(results / "wakeup.csv", "w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(["kind", "provider", *FIGURES, "runs"])
        writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
