"""Plots latency and bandwidth by message size from the CSV files that mpi_pingpong writes.

  plot.py --out FILE.png LABEL=FILE.csv [LABEL=FILE.csv ...]
"""

import argparse
import csv
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # no display is needed, or present
from matplotlib import pyplot as plt  # noqa: E402  (after the choice of the backend)

COLUMNS = ("bytes", "latency_us", "latency_median_us", "bandwidth_mb_s")


def size_text(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:g} {unit}"
        size /= 1024
    raise AssertionError("unreachable")


def read(path: Path) -> dict[str, list[float]]:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    if not rows:
        sys.exit(f"plot.py: {path} holds no measurement")
    missing = [column for column in COLUMNS if column not in rows[0]]
    if missing:
        sys.exit(f"plot.py: {path} lacks the column(s) {', '.join(missing)}")
    return {column: [float(row[column]) for row in rows] for column in COLUMNS}


def label_and_path(text: str) -> tuple[str, Path]:
    label, equals, path = text.partition("=")
    if not (label and equals and path):
        raise argparse.ArgumentTypeError(f"{text!r} is not LABEL=FILE.csv")
    return label, Path(path)


def plot(series: dict[str, dict[str, list[float]]], out: Path) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 5), layout="constrained")
    for label, data in series.items():
        line = left.plot(data["bytes"], data["latency_median_us"], marker="o", markersize=3, label=label)[0]
        left.plot(data["bytes"], data["latency_us"], linestyle=":", linewidth=1, color=line.get_color())
        right.plot(data["bytes"], [v / 1000 for v in data["bandwidth_mb_s"]], marker="o", markersize=3, label=label)
    left.set(title="latency, half round trip (solid: median, dotted: best)", ylabel="µs", yscale="log")
    right.set(title="bandwidth, windows of messages in flight", ylabel="GB/s")
    sizes = sorted({size for data in series.values() for size in data["bytes"]})
    ticks = [size for i, size in enumerate(sizes) if i % 3 == 0]
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xlabel("message size")
        axes.set_xticks(ticks, [size_text(tick) for tick in ticks], rotation=45)
        axes.grid(True, which="major", alpha=0.3)
        axes.legend()
    figure.suptitle("MPI, two ranks on one host")
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("series", type=label_and_path, nargs="+", metavar="LABEL=FILE.csv")
    args = parser.parse_args()
    plot({label: read(path) for label, path in args.series}, args.out)
    print(args.out)


if __name__ == "__main__":
    main()
