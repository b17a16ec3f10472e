"""Pictures of the summary's tables: one file for each measurement and metric by size, a part for each group of peers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .summary import Record, Table, sections
from .tables import size

COLUMNS = 3


def series(table: Table, name: str) -> tuple[list[int], list[float], list[float], list[float]]:
    """Cases, medians, quartiles of a peer."""
    rows = [row for row in table.rows if name in row.cells and row.case.isdigit()]
    cells = [row.cells[name] for row in rows]
    return [int(row.case) for row in rows], [c.median for c in cells], [c.low for c in cells], [c.high for c in cells]


def draw(axes: Any, table: Table, title: str) -> None:
    for name in table.ours + table.others:
        cases, medians, low, high = series(table, name)
        style = "-" if name in table.ours else "--"
        line = axes.plot(cases, medians, style, marker="o", markersize=3, label=name, linewidth=2 if name in table.ours else 1)[0]
        axes.fill_between(cases, low, high, color=line.get_color(), alpha=0.15)
    limits = [(int(row.case), row.limit[1].median) for row in table.rows if row.limit and row.case.isdigit()]
    if limits:
        axes.plot(*zip(*limits, strict=True), ":", color="black", label="limit")
    cases = sorted({int(row.case) for row in table.rows if row.case.isdigit()})
    ticks = cases[:: max(1, len(cases) // 7)]
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(ticks, [size(str(tick), table.measurement["case"]) for tick in ticks], rotation=45)
    axes.set_title(title)
    axes.set_xlabel(table.measurement["case"])
    axes.grid(True, which="major", alpha=0.3)
    axes.legend(fontsize="small")


def picture(tables: Sequence[Table], groups: dict[str, str], out: Path) -> None:
    """The same metric of one measurement in several groups."""
    import matplotlib

    matplotlib.use("Agg")  # no display is needed, or present
    from matplotlib import pyplot as plt

    columns = min(len(tables), COLUMNS)
    rows = -(-len(tables) // columns)
    figure, grid = plt.subplots(rows, columns, figsize=(5.5 * columns, 4.5 * rows), layout="constrained", squeeze=False)
    metric = tables[0].metric
    for number, axes in enumerate(grid.flat):
        if number < len(tables):
            draw(axes, tables[number], groups[tables[number].group])
            axes.set_ylabel(metric.unit or metric.title)
        else:
            axes.set_axis_off()
    figure.suptitle(f"{tables[0].measurement['id']}: {metric.title}")
    figure.savefig(out, dpi=110)
    plt.close(figure)


def pictures(record: Record, folder: Path) -> list[Path]:
    """One for each measurement and metric that has two cases or more."""
    by_name: dict[str, list[Table]] = {}
    for section in sections(record):
        for table in section.tables:
            if sum(row.case.isdigit() for row in table.rows) > 1:
                name = f"{table.measurement['id']}-{table.metric.name}".replace("/", "-").replace(" ", "-")
                by_name.setdefault(name, []).append(table)
    written = []
    for name, tables in by_name.items():
        written.append(folder / f"{name}.png")
        picture(tables, record["groups"], written[-1])
    return written
