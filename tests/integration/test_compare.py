"""bench/compare: one family with a few peers, from the command to its report."""

import json
import signal
import sys
import time
from pathlib import Path

from harness import BUILD, TOP, Launcher

sys.path.insert(0, str(TOP / "bench"))
from comparison import plots, summary


def test_one_family(launcher: Launcher, tmp_path: Path) -> None:
    """Peers are interleaved; a missing peer is named and the others run; the report can be made again from the runs."""
    what = ["--only", "latency/warm", "--peers", "fabric:unimem,fabric:line,mpich:unimem,openmpi5:sm", "--cases", "8"]
    how = ["--repeat", "2", "--seconds", "0.005", "--no-plots", "--build", BUILD, "--openmpi", tmp_path / "nothing"]
    run = launcher.run([TOP / "bench" / "compare", *what, *how, "--out", tmp_path]).succeeded()
    record = json.loads((tmp_path / "runs.json").read_text())
    assert [(r["peer"], r["repetition"]) for r in record["runs"]] == [
        (peer, repetition) for repetition in (0, 1) for peer in ("fabric:unimem", "fabric:line", "mpich:unimem")
    ]
    assert not any(r["error"] for r in record["runs"]), str(run)
    for r in record["runs"]:
        assert {metric for metric, _, _ in r["figures"]} == {"us", "p50_us", "p99_us", "p999_us", *summary.LINES}, r
    report = (tmp_path / "report.md").read_text()
    assert "| bytes | unimem | limit | unimem : limit |" in report
    assert f"- openmpi5:sm: no mpiexec in {tmp_path}/nothing/bin" in report
    launcher.run([TOP / "bench" / "compare", "--from", tmp_path / "runs.json", "--no-plots", "--out", tmp_path / "again"]).succeeded()
    assert (tmp_path / "again" / "report.md").read_text() == report


def test_the_floor(launcher: Launcher, tmp_path: Path) -> None:
    """The floor of an MPI is measured; over a provider that carries messages, that measurement is an error."""
    how = ["--only", "bandwidth/warm", "--peers", "mpich:floor", "--cases", "8", "--repeat", "1", "--seconds", "0.005", "--no-plots"]
    run = [TOP / "bench" / "compare", *how, "--build", BUILD, "--out"]
    launcher.run([*run, tmp_path / "floor"]).succeeded()
    (found,) = json.loads((tmp_path / "floor" / "runs.json").read_text())["runs"]
    assert not found["error"] and {metric for metric, _, _ in found["figures"]} == {"mb_s", "ns_message", *summary.LINES}
    carried = ["stream", "--link", "unimem", "--cases", "8", "--kind", "floor"]
    run = launcher.run([BUILD / "bench" / "compare_fabric", *carried], env={"FI_PROVIDER": "unimem", "FI_PROVIDER_PATH": str(BUILD)})
    assert run.status == 1 and "a message was carried" in run.err, str(run)


def test_files_of_another_kind(launcher: Launcher, tmp_path: Path) -> None:
    """What is no directory, and what is no earlier run, is named before anything runs."""
    (tmp_path / "file").write_text("text")
    compare = [TOP / "bench" / "compare", "--no-plots"]
    run = launcher.run([*compare, "--only", "latency/warm", "--peers", "fabric:line", "--build", BUILD, "--out", tmp_path / "file"])
    assert run.status == 1 and f"compare: --out {tmp_path}/file: File exists" in run.err and "measurement" not in run.out, str(run)
    for path in (tmp_path / "file", tmp_path / "nothing"):
        run = launcher.run([*compare, "--from", path])
        assert run.status == 1 and f"compare: --from {path}: not a runs.json" in run.err, str(run)
        assert "Traceback" not in run.err, str(run)


def test_ended_before_its_time(launcher: Launcher, tmp_path: Path) -> None:
    """SIGTERM also ends the run in progress (the fixture looks for leftovers); what was measured is reported."""
    what = ["--only", "sleep/cq", "--peers", "fabric:unimem", "--repeat", "1"]  # 5 s and more
    how = ["--no-plots", "--build", BUILD, "--out", tmp_path]
    process = launcher.start([TOP / "bench" / "compare", *what, *how], launcher.environment())
    try:
        assert process.stderr
        assert "0 of 1 runs" in process.stderr.readline()
        time.sleep(1)  # until the run is in progress
    finally:
        process.send_signal(signal.SIGTERM)
    run = launcher.finish(process, 30)
    assert run.status == 130 and "ended before its time" in run.err, str(run)
    assert json.loads((tmp_path / "runs.json").read_text())["runs"] == []
    assert (tmp_path / "report.md").exists()


def test_the_picture_of_the_documents(tmp_path: Path) -> None:
    """It shows ratios to the best peer of each size, for groups on one host; it is made only with both measurements."""
    peers = [(group, name, kind) for group in ("mpich", "net") for name, kind in (("unimem", "ours"), ("a", "peer"), ("b", "peer"))]
    record = {
        "groups": {"mpich": "MPICH", "net": "between hosts"},
        "missing": {},
        "peers": [{"id": f"{group}:{name}", "group": group, "name": name, "kind": kind} for group, name, kind in peers],
        "measurements": [{"id": name, "family": name, "title": name, "case": "bytes"} for name in ("latency/used", "bandwidth/used")],
        "runs": [
            {"measurement": "latency/used", "peer": f"{group}:{name}", "repetition": 0, "error": None,
             "figures": [["us", 8, {"unimem": 2, "a": 3, "b": 5}[name]], ["us", 64, 4]]}
            for group, name, _ in peers
        ],
    }  # fmt: skip
    out = tmp_path / "picture.svg"
    assert not plots.page_picture(record, out)
    record["runs"] += [run | {"measurement": "bandwidth/used", "figures": [["mb_s", 8, 1]]} for run in record["runs"]]
    (table,) = plots.page_tables(record, "latency/used", "us")
    assert table.group == "mpich"
    assert [(row.case, value) for value, row in table.ratios("unimem")] == [("8", 1.5), ("64", 1.0)]
    assert plots.page_picture(record, out)
    text = out.read_text()
    assert "MPICH: a, b" in text and "between hosts" not in text
