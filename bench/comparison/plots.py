"""Pictures of the summary's tables: one file for each measurement and metric by size, one part for each group."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .summary import Record, Table, sections
from .tables import size

COLUMNS = 3
PAGE = (("latency/used", "us", "half a round trip"), ("bandwidth/used", "mb_s", "64 in flight"))  # parts of the documents' picture


def series(table: Table, name: str) -> tuple[list[int], list[float], list[float], list[float]]:
    """Cases, medians, lower and upper quartiles of a peer."""
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


def pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")  # no display is needed, or present
    from matplotlib import pyplot as plt

    return plt


def picture(tables: Sequence[Table], groups: dict[str, str], out: Path) -> None:
    """Draws one metric of one measurement in several groups."""
    plt = pyplot()
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
    """Writes one picture for each measurement and metric that has two cases or more."""
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


def page_tables(record: Record, measurement: str, metric: str) -> list[Table]:
    """The tables for a part of the documents' picture: those of groups on one host."""
    found = [t for section in sections(record) for t in section.tables if (t.measurement["id"], t.metric.name) == (measurement, metric)]
    return [table for table in found if table.ours and table.others and "net" not in table.group]


def draw_ratios(axes: Any, tables: Sequence[Table], groups: dict[str, str]) -> None:
    """Draws a line for each group: how many times as good unimem is as the best peer of each size."""
    cases = sorted({int(row.case) for table in tables for row in table.rows})
    for table in tables:
        ratios = [(cases.index(int(row.case)), value) for value, row in table.ratios(table.ours[0])]
        axes.plot(*zip(*ratios, strict=True), marker="o", markersize=3, label=f"{groups[table.group]}: {', '.join(table.others)}")
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_ylim(bottom=0)
    axes.set_xticks(range(len(cases)), [size(str(case), "bytes") for case in cases], rotation=60)
    axes.set_xlabel("bytes")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize="small")


def page_picture(record: Record, out: Path) -> bool:
    """Writes the picture for the documents. False: a part of it has nothing to draw."""
    parts = [(page_tables(record, measurement, metric), title) for measurement, metric, title in PAGE]
    if not all(tables for tables, _ in parts):
        return False
    plt = pyplot()
    plt.rcParams |= {"svg.hashsalt": "unimem", "svg.fonttype": "none"}  # the same small file from the same figures
    figure, grid = plt.subplots(1, len(parts), figsize=(11, 4.8), layout="constrained")
    for axes, (tables, title) in zip(grid, parts, strict=True):
        draw_ratios(axes, tables, record["groups"])
        axes.set_title(f"{title}: {tables[0].metric.title}")
    grid[0].set_ylabel("times as good as the best of the others")
    figure.savefig(out, metadata={"Date": None})
    plt.close(figure)
    return True
