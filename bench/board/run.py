"""The board in software, and the provider over it step by step, against the poster's figures.

  run.py [--out DIRECTORY] [--quick] [--docs]

Everything is measured in the virtual time of the model (UNIMEM_EMU_TIMING=virtual), so the figures do not depend on the
host:

  1. cpu_call_ns is fitted to the poster's 23.41 us (naive, 0 bytes, MPICH's active messages), and to nothing else;
  2. with it, latency and bandwidth by size: of the bare interface (raw.c), of MPICH over every step of
     FI_UNIMEM_BOARD_STEP up to "embedded" (pingpong.c), and at libfabric's level, with memory that is dmable, over
     "direct" and "native" (fabric.c): steps.csv, and steps.svg in the shape of the poster's figure;
  3. the poster's two other figures, 14.47 us and 360.59 MB/s, as predictions;
  4. all steps together, compared with raw DMA and with the bound of the pipeline: bounds.csv;
  5. what changes when a parameter is 20 % smaller or larger, with cpu_call_ns fitted anew: sensitivity.csv.

--docs also puts the figure and the tables into docs/. Needs a build (UNIMEM_BUILD, default: build) and the environment
of ./check (.venv). It is a model, not a board.
"""

import argparse
import csv
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterable
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # no display is needed, or present
from matplotlib import pyplot as plt  # noqa: E402  (after the choice of the backend)

TOP = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("UNIMEM_BUILD", TOP / "build")).resolve()
VENV = TOP / ".venv"
DOCS = TOP / "docs"
PAPER = {"naive": 23.41, "dmable": 14.47, "bandwidth": 360.59}
LARGEST = 4 << 20
RECORD, HEAD = 32768, 64  # bytes of the largest body of a record over a board, and of what precedes it
VARIED = (
    "mailbox_latency_ns", "mailbox_gap_ns", "dma_setup_ns", "dma_bandwidth", "register_ns", "deregister_ns", "cpu_poll_ns",
    "cpu_copy_bandwidth",
)  # fmt: skip

Row = tuple[int, float, float]  # bytes, us, MB/s
Rows = dict[str, list[Row]]
Params = dict[str, int]


def defaults() -> Params:
    """The emulator's default values of the parameters."""
    text = (TOP / "emu" / "params.c").read_text()
    found = re.findall(r'\{"(\w+)", offsetof\(struct emu_params, \w+\), (\d+),', text)
    return {name: int(value) for name, value in found}


DEFAULTS = defaults()


# ---- running ----


def run(command: list[str | Path], step: str, params: Params, more: dict[str, str]) -> list[list[float]]:
    """The lines of numbers that a benchmark prints. It runs again if the host was too busy for an exact result."""
    env = os.environ | {
        "FI_PROVIDER_PATH": str(BUILD),
        "FI_PROVIDER": "unimem",
        "FI_UNIMEM_BOARD_LIBRARY": str(BUILD / "libunimem.so.1"),
        "FI_UNIMEM_BOARD_STEP": step,
        "FI_UNIMEM_LINGER": "0",  # lingering depends on the host's clock
        "UNIMEM_BOARD": f"bench-{uuid.uuid4().hex[:12]}",
        "UNIMEM_EMU_TIMING": "virtual",
        "UNIMEM_EMU_PARAMS": ",".join(f"{name}={value}" for name, value in params.items()),
    }
    for last in (False, False, True):
        done = subprocess.run(command, env=env | more, capture_output=True, text=True, timeout=900)
        if done.returncode == 0:
            lines = [line.split() for line in done.stdout.splitlines() if line[:1].isdigit()]
            return [[float(field) for field in line] for line in lines]
        if last or "not exact" not in done.stderr:
            sys.exit(f"run.py: step {step} failed:\n{done.stdout}{done.stderr}")
    raise AssertionError("unreachable")


def build() -> None:
    program = BUILD / "bench" / "board_pingpong"
    source = TOP / "bench" / "board" / "pingpong.c"
    subprocess.run([VENV / "bin" / "mpicc", "-std=gnu17", "-O2", "-Wall", "-Wextra", "-o", program, source, "-ldl"], check=True)
    for name in ("board_raw", "board_fabric", "libboard_clock.so"):
        if not (BUILD / "bench" / name).exists():
            sys.exit(f"run.py: {BUILD}/bench/{name} is not there: build the project first (./quickstart, or ninja)")


def mpich(step: str, params: Params, tagged: bool, smallest: int, largest: int) -> list[Row]:
    command: list[str | Path] = [BUILD / "unimem", "run", "-q", "--machine", "board", "--", VENV / "bin" / "mpiexec", "-n", "2"]
    command += ["env", f"LD_PRELOAD={BUILD / 'bench' / 'libboard_clock.so'}"]  # the ranks see the board's time
    command += [BUILD / "bench" / "board_pingpong", "--min", str(smallest), "--max", str(largest)]
    if not tagged:  # MPICH copies an active message once more, with loads and stores that the model does not see
        command += ["--copy", str((DEFAULTS | params)["cpu_copy_bandwidth"])]
    lines = run(command, step, params, {"MPIR_CVAR_CH4_OFI_ENABLE_TAGGED": "1" if tagged else "0"})
    return [(int(size), us, mbs) for size, us, mbs in lines]


def raw(params: Params) -> list[Row]:
    return [(int(size), us, mbs) for size, us, mbs in run([BUILD / "bench" / "board_raw"], "native", params, {})]


def fabric(step: str, params: Params) -> list[list[float]]:
    """bytes, put us, message us, put MB/s, messages from dmable memory MB/s, messages between ordinary buffers MB/s"""
    return run([BUILD / "bench" / "board_fabric", "--max", str(LARGEST)], step, params,
               {"LD_PRELOAD": str(BUILD / "bench" / "libboard_clock.so")})  # fmt: skip


# ---- results ----


def latency(step: str, params: Params, tagged: bool = False) -> float:
    return mpich(step, params, tagged, 0, 0)[0][1]


def fit(params: Params) -> int:
    """cpu_call_ns for which the naive step has the poster's latency, which is nearly linear in it."""
    low, high = 400, 1200
    while True:
        at_low, at_high = (latency("naive", params | {"cpu_call_ns": ns}) for ns in (low, high))
        found = max(0, round(low + (PAPER["naive"] - at_low) / (at_high - at_low) * (high - low)))
        if high - low <= 20:
            return found
        low, high = max(0, found - 10), found + 10


def predictions(params: Params) -> tuple[float, float]:
    peak = max(row[2] for row in mpich("dmable", params, False, 1 << 16, 1 << 19))
    return latency("dmable", params), peak


def pipeline_mbs(params: Params, size: int) -> float:
    """The bound, MB/s, of messages between ordinary buffers: that of the slowest of sender, engine and receiver, with
    records of so many bytes."""
    p = DEFAULTS | params
    body = min(size, RECORD)
    copy_ns = p["cpu_call_ns"] + body * 1e9 / p["cpu_copy_bandwidth"]
    sender = copy_ns + 3 * p["cpu_call_ns"]  # begins a DMA, polls it, sends a message
    engine = p["dma_setup_ns"] + (body + HEAD) * 1e9 / p["dma_bandwidth"]
    receiver = copy_ns + p["cpu_call_ns"]  # takes that message
    return body * 1e3 / max(sender, engine, receiver)


def deviation(value: float, paper: float) -> str:
    return f"{(value / paper - 1) * 100:+.1f} %".replace("-", "−")


def peak(rows: list[Row]) -> float:
    return max(row[2] for row in rows)


def all_steps(params: Params) -> tuple[Rows, list[list[float]]]:
    rows = {step: mpich(step, params, False, 0, LARGEST) for step in ("naive", "cache", "dmable", "eager")}
    rows["embedded (tagged)"] = mpich("embedded", params, True, 0, LARGEST)
    level = fabric("native", params)
    rows["direct (dmable buffers)"] = [(int(line[0]), line[2], line[4]) for line in level]
    rows["native (put)"] = [(int(line[0]), line[1], line[3]) for line in level]
    rows["raw DMA"] = [row for row in raw(params) if row[0]]
    return rows, level


def sensitivity() -> list[list[str]]:
    table = []
    for name in VARIED:
        both = []
        for factor in (0.8, 1.2):
            params = {name: round(DEFAULTS[name] * factor)}
            params["cpu_call_ns"] = fit(params)
            both.append((str(params["cpu_call_ns"]), *(f"{value:.2f}" for value in predictions(params))))
            print(f"{name} x {factor}: cpu_call_ns {both[-1][0]}, {both[-1][1]} us, {both[-1][2]} MB/s", flush=True)
        calls, us, mbs = ([each[i] for each in both] for i in range(3))
        table.append([f"`{name}`", ", ".join(calls), ", ".join(us), ", ".join(f"{float(each):.0f}" for each in mbs)])
    return table


def bounds(params: Params, rows: Rows, level: list[list[float]]) -> list[list[str]]:
    """By size: put and message at libfabric's level against raw DMA; ordinary buffers against the pipeline's bound."""
    table = []
    for line, (size, raw_us, raw_mbs) in zip(level, rows["raw DMA"], strict=True):
        if size not in (1, 64, 1024, 4096, 16384, 65536, 262144, 1 << 20, LARGEST):
            continue
        _, put_us, send_us, put_mbs, send_mbs, plain_mbs = line
        bound = pipeline_mbs(params, size)
        ordinary = [f"{bound:.0f}", f"{plain_mbs:.1f} ({plain_mbs / bound:.0%})"] if size >= RECORD else ["–", f"{plain_mbs:.1f}"]
        table.append([f"{size}", f"{raw_us:.2f}", f"{put_us:.2f}", f"{send_us:.2f}", f"{raw_mbs:.1f}",
                      f"{put_mbs:.1f} ({put_mbs / raw_mbs:.0%})", f"{send_mbs:.1f} ({send_mbs / raw_mbs:.0%})", *ordinary])  # fmt: skip
    return table


# ---- output ----


def plot(rows: Rows, out: Path) -> None:
    plt.rcParams |= {"svg.hashsalt": "unimem", "svg.fonttype": "none"}  # the same small file from the same figures
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.8))
    for name, each in rows.items():
        style = {"color": "black", "ls": ":", "lw": 1} if name == "raw DMA" else {"marker": ".", "ms": 4, "lw": 1.2}
        left.plot([row[0] or 0.5 for row in each], [row[1] for row in each], label=name, **style)
        right.plot([row[0] or 0.5 for row in each], [row[2] for row in each], label=name, **style)
    left.axhline(PAPER["naive"], color="grey", lw=0.7)
    left.axhline(PAPER["dmable"], color="grey", lw=0.7, ls="--")
    right.axhline(PAPER["bandwidth"], color="grey", lw=0.7, ls="--")
    for axes, title in ((left, "latency, µs (one way)"), (right, "bandwidth, MB/s")):
        axes.set_xscale("log", base=2)
        axes.set_xlabel("message, bytes (0 at the left edge)")
        axes.set_title(title)
        axes.grid(alpha=0.3)
    left.set_yscale("log")
    left.legend(fontsize=8)
    figure.suptitle("A model, not a board. Grey: the poster's figures (naive: solid, optimised: dashed)", fontsize=9)
    figure.tight_layout()
    figure.savefig(out, metadata={"Date": None})
    plt.close(figure)


def write_csv(path: Path, head: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(head)
        writer.writerows(rows)


def docs_table(name: str, head: list[str], rows: list[list[str]]) -> None:
    """Puts a table between its marks in docs/unimem-board.md."""
    path = DOCS / "unimem-board.md"
    lines = [f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows]]
    mark = re.compile(rf"(<!-- run\.py: {name} -->\n).*?(<!-- end -->\n)", re.S)
    text, count = mark.subn(lambda found: found[1] + "\n".join(lines) + "\n" + found[2], path.read_text())
    if count != 1:
        sys.exit(f"run.py: {path} has no place for the table {name}")
    path.write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=BUILD / "results" / "board")
    parser.add_argument("--quick", action="store_true", help="latency of 0 bytes and the predictions only")
    parser.add_argument("--docs", action="store_true", help="also the figure and the tables in docs/")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    build()
    params = {"cpu_call_ns": fit({})}
    print(f"fitted: cpu_call_ns = {params['cpu_call_ns']} (emu/params.c has {DEFAULTS['cpu_call_ns']})")
    us, mbs = predictions(params)
    print(f"predicted: {us:.2f} us for 14.47 ({deviation(us, PAPER['dmable'])}), "
          f"{mbs:.1f} MB/s for 360.59 ({deviation(mbs, PAPER['bandwidth'])})")  # fmt: skip
    floor = (DEFAULTS["mailbox_latency_ns"] + 2 * params["cpu_call_ns"]) / 1e3
    tagged = latency("embedded", params, tagged=True)
    print(f"0 bytes, tagged, all steps: {tagged:.2f} us, {tagged / floor:.2f} x mailbox and two calls ({floor:.2f} us)")
    if arguments.quick:
        return
    rows, level = all_steps(params)
    write_csv(arguments.out / "steps.csv", ["step", "bytes", "latency_us", "bandwidth_mb_s"],
              ([name, *row] for name, each in rows.items() for row in each))  # fmt: skip
    plot(rows, arguments.out / "steps.svg")
    steps = [[name, f"{each[0][1]:.2f}", f"{peak(each):.0f}"] for name, each in rows.items()]
    for name, smallest, largest in steps:
        print(f"{name}: {smallest} us, {largest} MB/s")
    bounds_head = ["bytes", "raw DMA, µs", "put", "message", "raw DMA, MB/s", "puts", "messages", "pipeline's bound", "ordinary buffers"]
    against = bounds(params, rows, level)
    write_csv(arguments.out / "bounds.csv", bounds_head, against)
    print("\n".join("  ".join(row) for row in [bounds_head, *against]))
    varied_head = ["parameter × 0.8, × 1.2", "`cpu_call_ns`", "dmable, 0 B, µs", "peak, MB/s"]
    varied = sensitivity()
    write_csv(arguments.out / "sensitivity.csv", varied_head, varied)
    if arguments.docs:
        plot(rows, DOCS / "unimem-board.svg")
        docs_table("steps", ["step", "smallest message, µs", "peak, MB/s"], steps)
        docs_table("bounds", bounds_head, against)
        docs_table("sensitivity", varied_head, varied)


if __name__ == "__main__":
    main()
