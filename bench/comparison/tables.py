"""Markdown of the summary's tables, and its place in a document."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

from .families import measurements
from .summary import APART, Record, Row, Section, Spread, Table, is_apart, sections, usual_line

BEGIN = "<!-- bench/compare writes what follows -->"
END = "<!-- up to here -->"
NOTHING = "–"
WIDTH = 120


def number(value: float) -> str:
    """With three significant digits."""
    if value == 0:
        return "0"
    digits = f"{value:.3g}"
    return f"{float(digits):,.0f}" if abs(float(digits)) >= 1000 else digits


def size(case: str, what: str) -> str:
    """A case as readers expect it: bytes in KiB or MiB where these are whole."""
    value = int(case) if case.isdigit() else 0
    if what.startswith("bytes"):
        for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
            if value >= unit and value % unit == 0:
                return f"{value // unit} {name}"
    return f"{value:,}" if case.isdigit() else case


def bullet(words: str) -> str:
    return textwrap.fill(f"- {words}", WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def cell(value: Spread | None) -> str:
    if value is None:
        return NOTHING
    return number(value.median) + (f" ({number(value.low)}–{number(value.high)})" if value.runs > 1 else "")


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def short(name: str) -> str:
    """The name of a variant of unimem, for the header of a column of ratios."""
    return name.removeprefix("unimem").strip() or "unimem"


def row_text(table: Table, row: Row) -> list[str]:
    cells = [size(row.case, table.measurement["case"]), *(cell(row.cells.get(name)) for name in table.ours + table.others)]
    if table.has_limit:
        cells.append(f"{number(row.limit[1].median)} ({row.limit[0]})" if row.limit else NOTHING)
    for name in table.ours if table.others else []:
        cells.append(f"{row.to_rival[name]:.2f}" if name in row.to_rival else NOTHING)
    for name in table.ours if table.has_limit else []:
        cells.append(f"{row.to_limit[name]:.2f}" if name in row.to_limit else NOTHING)
    return cells


def table_text(table: Table) -> str:
    unit = f", {table.metric.unit}" if table.metric.unit else ""
    more = ", more is better" if table.metric.higher_is_better else ""
    header = [table.measurement["case"], *table.ours, *table.others, *(["limit"] if table.has_limit else [])]
    header += [f"{short(name)} : best peer" for name in table.ours] if table.others else []
    header += [f"{short(name)} : limit" for name in table.ours] if table.has_limit else []
    rows = [row_text(table, row) for row in table.rows]
    return f"*{table.metric.title}{unit}{more}*\n\n" + markdown(header, rows)


def main_tables(section: Section) -> list[Table]:
    """The tables without details. The first table never counts as a detail: it may be all that is measured."""
    return [table for at, table in enumerate(section.tables) if at == 0 or not table.metric.is_detail]


def section_text(section: Section, heading: str, has_details: bool) -> str:
    note = ["In the runs of this table the processors were apart.\n"] if section.are_apart else []
    text = [heading, *note, *(table_text(table) for table in (section.tables if has_details else main_tables(section)))]
    if section.failures:
        text.append("\n".join(bullet(f"{name}: {words}") for name, words in section.failures.items()) + "\n")
    return "\n".join(text)


def overview_row(table: Table, group: str) -> list[str] | None:
    """unimem's first variant against the best peer of each case; None if there is no other peer."""
    by_ratio = sorted(table.ratios(table.ours[0]), key=lambda pair: pair[0]) if table.ours else []
    if not by_ratio:
        return None
    ends = []
    for value, row in (by_ratio[0], by_ratio[-1]):
        assert row.rival
        ends.append(f"{value:.2f} ({size(row.case, table.measurement['case'])}, {row.rival[0]})")
    ahead = sum(value >= 1 for value, _ in by_ratio)
    return [table.measurement["id"], group, table.metric.title, f"{ahead} of {len(by_ratio)}", *ends]


def overview(all_sections: Sequence[Section], groups: dict[str, str]) -> str:
    """A line for each table, except those of details."""
    told = [(table, groups[section.group]) for section in all_sections for table in main_tables(section)]
    rows = [row for table, group in told if (row := overview_row(table, group))]
    return markdown(["measurement", "over", "by", "ahead in", "least ratio (case, best peer)", "greatest ratio"], rows)


def extent(record: Record) -> str:
    """How much of everything was run."""
    if record["setting"]["is_quick"]:
        return "**A quick run**, to see that everything works: too short for conclusions."
    measured = {run["measurement"] for run in record["runs"]}
    left_out = [m.id for m in measurements(1) if m.id not in measured]
    return "A full run." if not left_out else f"A part of a full run: without {', '.join(left_out)}."


def describe(record: Record) -> str:
    """The machine and the settings of the run."""
    machine, how = record["machine"], record["setting"]
    words = [extent(record)]
    if machine["load"] > 1:
        words.append("**The machine was busy at the start**: if that work went on, figures and ratios mean little.")
    words.append(
        f"{how['repeat']} interleaved repetitions, about {how['seconds']:g} s a figure, pinned to processors "
        f"{', '.join(map(str, how['cpus']))}. {machine['processor']}, {machine['processors']} processors, last-level cache "
        f"{machine['cache'] >> 10:,} KiB; {machine['system']}; load at the start {machine['load']:.2f}; {record['when']}; "
        f"unimem {record['version']}."
    )
    words += [
        f"Of an earlier run ({part['when']}, unimem {part['version']}): {', '.join(part['measurements'])}." for part in record.get("earlier", [])
    ]
    usual = usual_line(record)
    if usual is not None:
        apart = sum(is_apart(run, usual) for run in record["runs"])
        words.append(f"A cache line took {usual:.0f} ns from one processor to the other. In {apart} of {len(record['runs'])} runs it took "
                     f"more than {APART} times as long: a table has runs of one kind, where each peer has enough of them.")  # fmt: skip
    return textwrap.fill(" ".join(words), WIDTH, break_long_words=False, break_on_hyphens=False) + "\n"


def report(record: Record, level: str = "##", has_details: bool = True) -> str:
    """The report, with or without details. level: the mark of its headings."""
    found = sections(record)
    groups = record["groups"]
    text = [describe(record), f"{level} Overview\n", overview(found, groups)]
    if record["missing"]:
        text.append("Not run:\n")
        text.append("\n".join(f"- {peer}: {why}" for peer, why in record["missing"].items()) + "\n")
    family = ""
    for section in found:
        if section.measurement["family"] != family:
            family = section.measurement["family"]
            text.append(f"{level} {family}\n")
        heading = f"{level}# {section.measurement['id']}, {groups[section.group]}: {section.measurement['title']}\n"
        text.append(section_text(section, heading, has_details))
    return "\n".join(text)


def put_into(document: Path, text: str) -> None:
    """Puts the text between the marks of a document."""
    old = document.read_text(encoding="utf-8")
    head, mark, rest = old.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (mark and end):
        raise ValueError(f"{document} lacks the lines \"{BEGIN}\" and \"{END}\"")
    document.write_text(f"{head}{BEGIN}\n\n{text}\n{END}{tail}", encoding="utf-8")
