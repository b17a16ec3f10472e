"""bench/compare: one family with a few peers, from the command to its report."""

import json
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
