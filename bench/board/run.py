"""The provider over the board in software, step by step, against the poster's figures.

  run.py [--out DIRECTORY] [--quick]

Runs pingpong.c over MPICH for each step of FI_UNIMEM_BOARD_STEP, in the virtual time of the model
(UNIMEM_EMU_TIMING=virtual), so the figures do not depend on the host:

  1. cpu_call_ns is fitted to the poster's 23.41 us (naive, 0 bytes, MPICH's active messages), and to nothing else;
  2. with it, every step's latency and bandwidth by size: steps.csv, and steps.png in the shape of the poster's figure;
  3. the poster's two other figures, 14.47 us and 360.59 MB/s, as predictions;
  4. what changes when a parameter is 20 % smaller or larger, with cpu_call_ns fitted anew: sensitivity.csv.

Needs a build (UNIMEM_BUILD, default: build) and the environment of ./check (.venv). It is a model, not a board.
"""

import argparse
import csv
import os
import subprocess
import sys
import uuid
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # no display is needed, or present
from matplotlib import pyplot as plt  # noqa: E402  (after the choice of the backend)

TOP = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("UNIMEM_BUILD", TOP / "build")).resolve()
VENV = TOP / ".venv"
PROGRAM = BUILD / "bench" / "board_pingpong"
STEPS = ("naive", "cache", "dmable", "eager", "embedded")
PAPER = {"naive": 23.41, "dmable": 14.47, "bandwidth": 360.59}
VARIED = {
    "mailbox_latency_ns": 1000,
    "mailbox_gap_ns": 125,
    "dma_setup_ns": 1000,
    "dma_bandwidth": 1000000000,
    "register_ns": 10000,
    "deregister_ns": 2000,
    "cpu_copy_bandwidth": 1000000000,
}

Row = tuple[int, float, float]  # bytes, us, MB/s


def build() -> None:
    PROGRAM.parent.mkdir(exist_ok=True)
    source = TOP / "bench" / "board" / "pingpong.c"
    subprocess.run([VENV / "bin" / "mpicc", "-std=gnu17", "-O2", "-Wall", "-Wextra", "-o", PROGRAM, source, "-ldl"], check=True)


def measure(step: str, params: dict[str, int], tagged: bool, smallest: int, largest: int) -> list[Row]:
    values = params
    env = os.environ | {
        "FI_UNIMEM_BOARD_LIBRARY": str(BUILD / "libunimem.so.1"),
        "FI_UNIMEM_BOARD_STEP": step,
        "UNIMEM_BOARD": f"bench-{uuid.uuid4().hex[:12]}",
        "FI_UNIMEM_LINGER": "0",  # it goes by the clock of the host
        "UNIMEM_EMU_TIMING": "virtual",
        "UNIMEM_EMU_PARAMS": ",".join(f"{name}={value}" for name, value in values.items()),
        "MPIR_CVAR_CH4_OFI_ENABLE_TAGGED": "1" if tagged else "0",
    }
    command = [BUILD / "unimem", "run", "-q", "--machine", "board", "--", VENV / "bin" / "mpiexec", "-n", "2", PROGRAM]
    sizes = ["--min", str(smallest), "--max", str(largest)]
    if not tagged:  # MPICH copies an active message once more, with loads and stores that the model does not see
        sizes += ["--copy", str(params.get("cpu_copy_bandwidth", VARIED["cpu_copy_bandwidth"]))]
    run = subprocess.run([*command, *sizes], env=env, capture_output=True, text=True, timeout=900)
    if run.returncode:
        sys.exit(f"run.py: step {step} failed:\n{run.stdout}{run.stderr}")
    fields = [line.split() for line in run.stdout.splitlines()]
    return [(int(size), float(us), float(mbs)) for size, us, mbs in fields]


def latency(step: str, params: dict[str, int], tagged: bool = False) -> float:
    return measure(step, params, tagged, 0, 0)[0][1]


def fit(params: dict[str, int]) -> int:
    """cpu_call_ns for which the naive step has the poster's latency: it is linear in it."""
    low, high = (latency("naive", params | {"cpu_call_ns": ns}) for ns in (400, 1200))
    return max(0, round(400 + (PAPER["naive"] - low) / (high - low) * 800))


def predictions(params: dict[str, int]) -> tuple[float, float]:
    peak = max(row[2] for row in measure("dmable", params, False, 1 << 20, 4 << 20))
    return latency("dmable", params), peak


def deviation(value: float, paper: float) -> str:
    return f"{(value / paper - 1) * 100:+.1f} %"


def plot(rows: dict[str, list[Row]], out: Path) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.5))
    for name, each in rows.items():
        left.plot([row[0] or 0.5 for row in each], [row[1] for row in each], marker=".", label=name)
        right.plot([row[0] or 0.5 for row in each], [row[2] for row in each], marker=".", label=name)
    left.axhline(PAPER["naive"], color="grey", lw=0.7)
    left.axhline(PAPER["dmable"], color="grey", lw=0.7, ls="--")
    right.axhline(PAPER["bandwidth"], color="grey", lw=0.7, ls="--")
    for axes, title in ((left, "latency, us (one way)"), (right, "bandwidth, MB/s")):
        axes.set_xscale("log", base=2)
        axes.set_xlabel("message, bytes (0 at the left edge)")
        axes.set_title(title)
        axes.grid(alpha=0.3)
    left.set_yscale("log")
    right.legend()
    figure.suptitle("A model, not a board. Grey: the poster's figures (naive: solid, optimised: dashed)", fontsize=9)
    figure.tight_layout()
    figure.savefig(out / "steps.png", dpi=120)


def sensitivity(out: Path) -> None:
    with (out / "sensitivity.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["parameter", "factor", "cpu_call_ns", "dmable_us", "peak_mb_s"])
        for name, value in VARIED.items():
            for factor in (0.8, 1.2):
                params = {name: round(value * factor)}
                params["cpu_call_ns"] = fit(params)
                us, peak = predictions(params)
                writer.writerow([name, factor, params["cpu_call_ns"], f"{us:.2f}", f"{peak:.1f}"])
                print(f"{name} x {factor}: cpu_call_ns {params['cpu_call_ns']}, {us:.2f} us, {peak:.1f} MB/s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=BUILD / "results" / "board")
    parser.add_argument("--quick", action="store_true", help="latency of 0 bytes and the predictions only")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    build()
    params = {"cpu_call_ns": fit({})}
    print(f"fitted: cpu_call_ns = {params['cpu_call_ns']}")
    us, peak = predictions(params)
    print(f"predicted: {us:.2f} us for 14.47 ({deviation(us, PAPER['dmable'])}), "
          f"{peak:.1f} MB/s for 360.59 ({deviation(peak, PAPER['bandwidth'])})")  # fmt: skip
    floor = (VARIED["mailbox_latency_ns"] + 2 * params["cpu_call_ns"]) / 1e3
    tagged = latency("embedded", params, tagged=True)
    print(f"0 bytes, tagged, all steps: {tagged:.2f} us, {tagged / floor:.2f} x mailbox and two calls ({floor:.2f} us)")
    if arguments.quick:
        return
    rows = {step: measure(step, params, False, 0, 4 << 20) for step in STEPS}
    rows["embedded, tagged"] = measure("embedded", params, True, 0, 4 << 20)
    with (arguments.out / "steps.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["step", "bytes", "latency_us", "bandwidth_mb_s"])
        writer.writerows([name, *row] for name, each in rows.items() for row in each)
    plot(rows, arguments.out)
    for name, each in rows.items():
        print(f"{name}: {each[0][1]:.2f} us (0 B), {max(row[2] for row in each):.1f} MB/s")
    sensitivity(arguments.out)


if __name__ == "__main__":
    main()
