"""Statistics of runs.json: medians, spread, and ratios, as tables of numbers. Does not know how peers are run or shown.

A table is one metric of one measurement in one group of peers: a row for each case, a cell for each peer. A ratio says
how many times as good the first is as the second, whether more or less is better: above 1 the first is ahead.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .families import METRICS, Metric

OURS, LIMIT = "ours", "limit"
LINES = ("line_before_ns", "line_after_ns")  # bench/drivers/line.c
APART = 1.6  # if a line takes so many times its usual time, the two processors are further apart
LEAST = 2  # runs that a peer needs with its processors at that distance, or all of its runs count
Record = dict[str, Any]  # runs.json


class Spread(NamedTuple):
    """Median and quartiles of the values of all repetitions, and how many there are."""

    median: float
    low: float
    high: float
    runs: int


def spread(values: Sequence[float]) -> Spread:
    if len(values) == 1:
        return Spread(values[0], values[0], values[0], 1)
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(median, low, high, len(values))


def ratio(metric: Metric, first: float, second: float) -> float | None:
    """How many times as good the first is as the second; None if that has no meaning."""
    above, below = (first, second) if metric.higher_is_better else (second, first)
    return above / below if below > 0 else None


def best(metric: Metric, cells: Iterable[tuple[str, Spread]]) -> tuple[str, Spread] | None:
    """Name and value of the best cell; None: there is none."""
    return min(cells, key=lambda cell: -cell[1].median if metric.higher_is_better else cell[1].median, default=None)


@dataclass
class Row:
    case: str
    cells: dict[str, Spread]  # by the peer's name; a limit is no cell
    rival: tuple[str, Spread] | None = None  # the best peer that is not unimem
    limit: tuple[str, Spread] | None = None
    to_rival: dict[str, float] = field(default_factory=dict)  # ratios, by the name of a variant of unimem
    to_limit: dict[str, float] = field(default_factory=dict)


@dataclass
class Table:
    measurement: dict[str, Any]
    group: str
    metric: Metric
    ours: list[str]  # names of columns
    others: list[str]
    rows: list[Row]

    @property
    def has_limit(self) -> bool:
        return any(row.limit for row in self.rows)

    def ratios(self, name: str) -> list[tuple[float, Row]]:
        return [(row.to_rival[name], row) for row in self.rows if name in row.to_rival]


@dataclass
class Section:
    """The tables of one measurement in one group, and what went wrong there: by name of the peer."""

    measurement: dict[str, Any]
    group: str
    tables: list[Table]
    failures: dict[str, str]
    are_apart: bool = False  # the runs are those with the processors apart


def by_number(case: str) -> tuple[int, str]:
    return (int(case), "") if case.isdigit() else (0, case)


def row_of(metric: Metric, case: str, values: dict[str, list[float]], peers: Sequence[dict[str, str]]) -> Row:
    """values: the values of this case, by the peer's id."""
    spreads = {peer["id"]: spread(values[peer["id"]]) for peer in peers if values.get(peer["id"])}
    of = {kind: [(p["name"], spreads[p["id"]]) for p in peers if p["id"] in spreads and p["kind"] == kind]
          for kind in {p["kind"] for p in peers}}  # fmt: skip
    limits = of.pop(LIMIT, [])
    others = [cell for kind, cells in of.items() if kind != OURS for cell in cells]
    row = Row(case, dict(of.get(OURS, []) + others), best(metric, others), best(metric, limits))
    for name, value in of.get(OURS, []):
        for told, other in ((row.to_rival, row.rival), (row.to_limit, row.limit)):
            times = ratio(metric, value.median, other[1].median) if other else None
            if times is not None:
                told[name] = times
    return row


def failures_of(runs: Sequence[Record], peers: Sequence[dict[str, str]], missing: dict[str, str]) -> dict[str, str]:
    """What failed, in words, by the peer's name."""
    told = {}
    for peer in peers:
        of_peer = [run for run in runs if run["peer"] == peer["id"]]
        errors = [run["error"] for run in of_peer if run["error"]]
        if errors and all(error.startswith("not offered") for error in errors):
            told[peer["name"]] = errors[-1]
        elif errors:
            told[peer["name"]] = f"{len(errors)} of {len(of_peer)} runs failed: {errors[-1]}"
        elif peer["id"] in missing:
            told[peer["name"]] = f"not run: {missing[peer['id']]}"
    return told


def lines_of(run: Record) -> list[float]:
    """The time of a cache line before the run and after it, ns; empty: that was not measured."""
    return [value for metric, _, value in run["figures"] if metric in LINES]


def usual_line(record: Record) -> float | None:
    """Time of a cache line, ns, that a tenth of all measured times do not exceed: with the processors close."""
    lines = sorted(value for run in record["runs"] for value in lines_of(run))
    return lines[len(lines) // 10] if lines else None


def is_apart(run: Record, usual: float | None) -> bool:
    """True if the processors were further apart at some time of the run: a virtual machine's host may move them."""
    return usual is not None and max(lines_of(run), default=0) > APART * usual


def comparable(runs: Sequence[Record], usual: float | None) -> tuple[list[Record], bool]:
    """The runs with the processors close together; if a peer has too few of these and more with them apart, those with them
    apart, for all peers. A peer that has too few of the chosen ones keeps all. And whether they were apart."""
    count: dict[str, list[int]] = {}
    for run in runs:
        if run["figures"]:
            count.setdefault(run["peer"], [0, 0])[is_apart(run, usual)] += 1
    close, apart = (min((of_peer[state] for of_peer in count.values()), default=0) for state in (False, True))
    chosen = close < LEAST and apart > close
    return [run for run in runs if count.get(run["peer"], [0, 0])[chosen] < LEAST or is_apart(run, usual) == chosen], chosen


def section_of(record: Record, measurement: Record, group: str, usual: float | None) -> Section:
    peers = [peer for peer in record["peers"] if peer["group"] == group]
    ids = {peer["id"] for peer in peers}
    runs = [run for run in record["runs"] if run["measurement"] == measurement["id"] and run["peer"] in ids]
    values: dict[str, dict[str, dict[str, list[float]]]] = {}  # metric, case, peer
    compared, are_apart = comparable(runs, usual)
    for run in compared:
        for metric, case, value in run["figures"]:
            values.setdefault(metric, {}).setdefault(str(case), {}).setdefault(run["peer"], []).append(value)
    present = {peer["name"] for peer in peers if any(run["peer"] == peer["id"] for run in runs) and peer["kind"] != LIMIT}
    ours = [peer["name"] for peer in peers if peer["kind"] == OURS and peer["name"] in present]
    others = [peer["name"] for peer in peers if peer["kind"] != OURS and peer["name"] in present]
    tables = []
    for name in [metric for metric in METRICS if metric in values]:
        rows = [row_of(METRICS[name], case, cells, peers) for case, cells in sorted(values[name].items(), key=lambda c: by_number(c[0]))]
        tables.append(Table(measurement, group, METRICS[name], ours, others, rows))
    return Section(measurement, group, tables, failures_of(runs, peers, record["missing"]), are_apart)


def sections(record: Record) -> list[Section]:
    """The sections that have a figure or an error, measurement by measurement."""
    found, usual = [], usual_line(record)
    for measurement in record["measurements"]:
        for group in record["groups"]:
            section = section_of(record, measurement, group, usual)
            if section.tables or any("not run" not in words for words in section.failures.values()):
                found.append(section)
    return found
