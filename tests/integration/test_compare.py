"""bench/compare: one family with a few peers, from the command to its report."""

import json
import signal
import time
from pathlib import Path

from harness import BUILD, TOP, Launcher


def test_one_family(launcher: Launcher, tmp_path: Path) -> None:
    """Interleaved; a peer that is not there is named, and ends nothing; the report can be made again from the runs."""
    what = ["--only", "latency/warm", "--peers", "fabric:unimem,fabric:line,mpich:unimem,openmpi5:sm", "--cases", "8"]
    how = ["--repeat", "2", "--seconds", "0.005", "--no-plots", "--build", BUILD, "--openmpi", tmp_path / "nothing"]
    run = launcher.run([TOP / "bench" / "compare", *what, *how, "--out", tmp_path]).succeeded()
    record = json.loads((tmp_path / "runs.json").read_text())
    assert [(r["peer"], r["repetition"]) for r in record["runs"]] == [
        (peer, repetition) for repetition in (0, 1) for peer in ("fabric:unimem", "fabric:line", "mpich:unimem")
    ]
    assert not any(r["error"] for r in record["runs"]), str(run)
    for r in record["runs"]:
        assert {metric for metric, _, _ in r["figures"]} == {"us", "p50_us", "p99_us", "p999_us"}, r
    report = (tmp_path / "report.md").read_text()
    assert "| bytes | unimem | limit | unimem : limit |" in report
    assert f"- openmpi5:sm: no mpiexec in {tmp_path}/nothing/bin" in report
    launcher.run([TOP / "bench" / "compare", "--from", tmp_path / "runs.json", "--no-plots", "--out", tmp_path / "again"]).succeeded()
    assert (tmp_path / "again" / "report.md").read_text() == report


def test_ended_before_its_time(launcher: Launcher, tmp_path: Path) -> None:
    """SIGTERM ends the run of the moment, too (the fixture looks for what is left); what was measured is reported."""
    what = ["--only", "sleep/cq", "--peers", "fabric:unimem", "--repeat", "1"]  # 5 s and more
    how = ["--no-plots", "--build", BUILD, "--out", tmp_path]
    process = launcher.start([TOP / "bench" / "compare", *what, *how], launcher.environment())
    try:
        assert process.stderr
        assert "0 of 1 runs" in process.stderr.readline()
        time.sleep(1)  # into the run
    finally:
        process.send_signal(signal.SIGTERM)
    run = launcher.finish(process, 30)
    assert run.status == 130 and "ended before its time" in run.err, str(run)
    assert json.loads((tmp_path / "runs.json").read_text())["runs"] == []
    assert (tmp_path / "report.md").exists()
