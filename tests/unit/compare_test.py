#!/usr/bin/env python3
"""compare_test.py TREE: bench/compare's statistics, ratios and tables, and peers that are missing, fail or hang."""

import argparse
import sys
import tempfile
import unittest
from pathlib import Path

TREE = Path(sys.argv.pop(1))
sys.path[:0] = [str(TREE / "bench"), str(TREE / "tools")]
sys.dont_write_bytecode = True
from comparison import command, running, summary, tables  # noqa: E402  (after the path)
from comparison.families import METRICS, measurements  # noqa: E402

US, MB_S = METRICS["us"], METRICS["mb_s"]
PEERS = [("g:ours", "ours"), ("g:heap", "ours"), ("g:slow", "other"), ("g:fast", "other"), ("g:bare", "limit")]


def record(runs, missing=None, metric="us"):
    """runs: (peer, values by case) or (peer, error)."""
    told = [{"measurement": "m/x", "peer": peer, "repetition": 0, "error": got if isinstance(got, str) else "",
             "figures": [] if isinstance(got, str) else [[metric, case, value] for case, value in got.items()]}
            for peer, got in runs]  # fmt: skip
    return {
        "version": "1", "when": "2000-01-01", "groups": {"g": "Group"}, "missing": missing or {}, "runs": told,
        "machine": {"processor": "P", "processors": 2, "cache": 1 << 20, "system": "S", "load": 0.0},
        "setting": {"repeat": 3, "seconds": 0.1, "cpus": [0, 1], "is_quick": True},
        "measurements": [{"id": "m/x", "family": "m", "title": "T", "case": "bytes"}],
        "peers": [{"id": id_, "group": "g", "name": id_.split(":")[1], "kind": kind} for id_, kind in PEERS],
    }  # fmt: skip


def only_table(told):
    [section] = summary.sections(told)
    [table] = section.tables
    return table


class Renewal(unittest.TestCase):
    def two(self):
        old, new = record([("g:ours", {"8": 1.0}), ("g:slow", {"8": 2.0})]), record([("g:ours", {"8": 5.0})])
        old["measurements"].append({"id": "m/kept", "family": "m", "title": "T", "case": "bytes"})
        old["runs"].append({"measurement": "m/kept", "peer": "g:ours", "repetition": 0, "error": "", "figures": [["us", "8", 9.0]]})
        return old, new | {"version": "2", "when": "2000-02-02"}

    def test_a_later_run_renews_its_measurements_and_no_others(self):
        both = command.renewed(*self.two())
        figures = {(run["measurement"], run["peer"]): run["figures"][0][2] for run in both["runs"]}
        self.assertEqual(figures, {("m/x", "g:ours"): 5.0, ("m/kept", "g:ours"): 9.0})
        self.assertEqual(sorted(m["id"] for m in both["measurements"]), ["m/kept", "m/x"])
        self.assertEqual((both["version"], both["when"]), ("2", "2000-02-02"))

    def test_the_report_tells_what_is_of_which_run(self):
        both = command.renewed(*self.two())
        self.assertEqual(both["earlier"], [{"version": "1", "when": "2000-01-01", "measurements": ["m/kept"]}])
        self.assertIn("(2000-01-01, unimem 1): m/kept.", " ".join(tables.describe(both).split()))
        again = command.renewed(both, self.two()[0] | {"version": "3"})
        self.assertEqual(again["earlier"], [])

    def test_runs_of_two_machines_or_settings_are_refused(self):
        for part, name, value in (("machine", "processor", "Q"), ("setting", "repeat", 4)):
            old, new = self.two()
            new[part] = new[part] | {name: value}
            with self.assertRaises(SystemExit):
                command.renewed(old, new)


class Statistics(unittest.TestCase):
    def test_the_median_and_the_quartiles_are_of_all_repetitions(self):
        self.assertEqual(summary.spread([5, 1, 3, 2, 4]), summary.Spread(3, 2, 4, 5))
        self.assertEqual(summary.spread([1, 2]), summary.Spread(1.5, 1.25, 1.75, 2))
        self.assertEqual(summary.spread([7]), summary.Spread(7, 7, 7, 1))

    def test_one_bad_repetition_does_not_move_the_median(self):
        table = only_table(record([("g:ours", {"8": value}) for value in (1.0, 1.1, 99.0)]))
        self.assertEqual(table.rows[0].cells["ours"].median, 1.1)

    def test_a_ratio_above_one_is_ahead_whichever_way_the_metric_goes(self):
        self.assertEqual(summary.ratio(US, 1.0, 2.0), 2.0)
        self.assertEqual(summary.ratio(MB_S, 1.0, 2.0), 0.5)
        self.assertIsNone(summary.ratio(US, 0.0, 2.0))

    def test_the_rival_is_the_best_peer_of_each_case_and_no_limit(self):
        runs = [("g:ours", {"8": 1.0, "64": 4.0}), ("g:slow", {"8": 4.0, "64": 2.0}), ("g:fast", {"8": 2.0, "64": 3.0}),
                ("g:bare", {"8": 0.5})]  # fmt: skip
        small, large = only_table(record(runs)).rows
        self.assertEqual((small.rival[0], small.to_rival), ("fast", {"ours": 2.0}))
        self.assertEqual((large.rival[0], large.to_rival), ("slow", {"ours": 0.5}))
        self.assertEqual((small.limit[0], small.to_limit), ("bare", {"ours": 0.5}))
        self.assertEqual((large.limit, large.to_limit), (None, {}))
        more = only_table(record([("g:ours", {"8": 3.0}), ("g:slow", {"8": 1.0}), ("g:fast", {"8": 2.0})], metric="mb_s"))
        self.assertEqual((more.rows[0].rival[0], more.rows[0].to_rival), ("fast", {"ours": 1.5}))

    def test_cases_are_in_the_order_of_numbers(self):
        table = only_table(record([("g:ours", {"1024": 1.0, "8": 1.0, "64": 1.0})]))
        self.assertEqual([row.case for row in table.rows], ["8", "64", "1024"])

    def test_each_variant_of_ours_has_its_own_ratio(self):
        table = only_table(record([("g:ours", {"8": 1.0}), ("g:heap", {"8": 0.5}), ("g:slow", {"8": 2.0})]))
        self.assertEqual(table.rows[0].to_rival, {"ours": 2.0, "heap": 4.0})


def with_lines(told, lines):
    """lines: the time of a cache line before and after each run, in ns."""
    for run, (before, after) in zip(told["runs"], lines, strict=True):
        run["figures"] += [["line_before_ns", "0", before], ["line_after_ns", "0", after]]
    return told


class Apart(unittest.TestCase):
    RUNS = [("g:ours", {"8": value}) for value in (1.0, 1.2, 1.1, 9.0)] + [("g:slow", {"8": value}) for value in (2.0, 8.0, 2.2, 2.1)]

    def test_runs_with_the_processors_apart_are_left_out(self):
        told = with_lines(record(self.RUNS), [(60, 62), (61, 95), (60, 60), (60, 250), (65, 60), (240, 250), (70, 60), (60, 60)])
        cells = only_table(told).rows[0].cells
        self.assertEqual((cells["ours"].median, cells["ours"].runs), (1.1, 3))
        self.assertEqual((cells["slow"].median, cells["slow"].runs), (2.1, 3))
        self.assertIn("A cache line took 60 ns", tables.report(told))
        self.assertIn("In 2 of 8 runs", tables.report(told))

    def test_a_peer_that_has_few_others_keeps_them(self):
        two = with_lines(record(self.RUNS), [(60, 62), (60, 250), (60, 60), (60, 250)] + [(60, 60)] * 4)
        self.assertEqual(only_table(two).rows[0].cells["ours"].runs, 2)
        one = with_lines(record(self.RUNS), [(60, 62), (60, 250), (60, 250), (60, 250)] + [(60, 60)] * 4)
        self.assertEqual(only_table(one).rows[0].cells["ours"].runs, 4)

    def test_where_a_peer_has_few_close_runs_those_apart_are_compared(self):
        told = with_lines(record(self.RUNS), [(60, 62)] + [(250, 250)] * 3 + [(60, 60)] * 2 + [(250, 250)] * 2)
        cells = only_table(told).rows[0].cells
        self.assertEqual((cells["ours"].runs, cells["slow"].runs), (3, 2))
        self.assertIn("In the runs of this table the processors were apart.", tables.report(told))
        self.assertNotIn("In the runs of this table", tables.report(with_lines(record(self.RUNS), [(60, 60)] * 8)))

    def test_where_no_line_was_measured_nothing_is_left_out(self):
        told = record(self.RUNS)
        self.assertEqual(only_table(told).rows[0].cells["slow"].runs, 4)
        self.assertNotIn("cache line", tables.report(told))


class Variants(unittest.TestCase):
    def test_values_may_have_commas(self):
        text = "two=FI_UNIMEM_MACHINE=shm,net,FI_UNIMEM_COPY=1"
        last = command.variants_of(argparse.Namespace(build=Path("b"), variant=[text], before=None))[-1]
        self.assertEqual((last.name, last.env), ("unimem two", {"FI_UNIMEM_MACHINE": "shm,net", "FI_UNIMEM_COPY": "1"}))

    def test_what_sets_no_variable_is_refused(self):
        for text in ("two", "two=shm", "=FI_UNIMEM_COPY=1"):
            with self.assertRaises(SystemExit):
                command.variants_of(argparse.Namespace(build=Path("b"), variant=[text], before=None))


class Missing(unittest.TestCase):
    def test_a_missing_peer_is_named_with_its_reason_and_has_no_column(self):
        text = tables.report(record([("g:ours", {"8": 1.0}), ("g:slow", {"8": 2.0})], missing={"g:fast": "not installed"}))
        self.assertIn("- g:fast: not installed", text)
        self.assertIn("- fast: not run: not installed", text)
        self.assertIn("| bytes | ours | slow | ours : best peer |", text)

    def test_a_peer_that_fails_is_named_with_its_error_and_the_rest_stands(self):
        runs = [("g:ours", {"8": 1.0}), ("g:slow", "status 1: no memory"), ("g:ours", {"8": 3.0}), ("g:slow", {"8": 4.0})]
        text = tables.report(record(runs))
        self.assertIn("- slow: 1 of 2 runs failed: status 1: no memory", text)
        self.assertIn("| 8 | 2 (1.5–2.5) | 4 | 2.00 |", text)

    def test_what_a_peer_does_not_offer_is_no_failure(self):
        text = tables.report(record([("g:ours", {"8": 1.0}), ("g:slow", "not offered: pieces"), ("g:slow", "not offered: pieces")]))
        self.assertIn("- slow: not offered: pieces", text)
        self.assertNotIn("failed", text)

    def test_nothing_is_compared_where_nobody_else_ran(self):
        text = tables.report(record([("g:ours", {"8": 1.0}), ("g:slow", "hangs")]))
        self.assertIn("| 8 | 1 | – | – |", text)
        self.assertNotIn("nan", text)

    def test_a_measurement_in_which_all_fail_is_still_told(self):
        text = tables.report(record([("g:ours", "broken"), ("g:slow", "broken, too")]))
        self.assertIn("- ours: 1 of 1 runs failed: broken", text)


class Text(unittest.TestCase):
    def test_numbers_have_three_figures(self):
        shown = [tables.number(value) for value in (0, 0.04567, 1.2345, 123.4, 12345.6)]
        self.assertEqual(shown, ["0", "0.0457", "1.23", "123", "12,300"])

    def test_sizes_are_in_the_units_of_bytes_only_where_they_are_bytes(self):
        self.assertEqual([tables.size(case, "bytes") for case in ("8", "4096", "1048576", "cq")], ["8", "4 KiB", "1 MiB", "cq"])
        self.assertEqual(tables.size("1024", "messages"), "1,024")

    def test_details_can_be_left_out_but_not_the_first_table(self):
        for metric in ("p99_us", "us"):
            self.assertIn("| 8 | 1 |", tables.report(record([("g:ours", {"8": 1.0})], metric=metric), has_details=False))
        both = record([("g:ours", {"8": 1.0})])
        both["runs"][0]["figures"].append(["p99_us", "8", 777.0])
        self.assertIn("777", tables.report(both))
        self.assertNotIn("777", tables.report(both, has_details=False))

    def test_a_busy_machine_is_told(self):
        busy = record([("g:ours", {"8": 1.0})])
        self.assertNotIn("busy at the start", tables.report(busy))
        busy["machine"]["load"] = 3.0
        self.assertIn("busy at the start", tables.report(busy))

    def test_tables_go_between_the_marks_of_a_document(self):
        with tempfile.TemporaryDirectory() as name:
            document = Path(name) / "d.md"
            document.write_text(f"before\n{tables.BEGIN}\nold\n{tables.END}\nafter\n")
            for _ in range(2):
                tables.put_into(document, "new")
            self.assertEqual(document.read_text(), f"before\n{tables.BEGIN}\n\nnew\n{tables.END}\nafter\n")
            document.write_text("no marks")
            self.assertRaises(ValueError, tables.put_into, document, "new")

    def test_every_measurement_has_a_name_of_its_own(self):
        names = [m.id for m in measurements(1)]
        self.assertEqual(len(names), len(set(names)))


class Running(unittest.TestCase):
    def run_shell(self, script, timeout=30.0):
        return running.run(["sh", "-c", script], {}, timeout)

    def test_figures_are_read_and_other_lines_are_not(self):
        outcome = self.run_shell("echo hello; echo figure us 8 0.5; echo figure p50_us cq 1e3; echo not a figure us 8 1")
        self.assertEqual((outcome.figures, outcome.error), ([("us", "8", 0.5), ("p50_us", "cq", 1000.0)], ""))

    def test_what_was_measured_before_a_failure_is_kept_beside_the_error(self):
        outcome = self.run_shell("echo figure us 8 0.5; echo 'measure: no memory' >&2; exit 1")
        self.assertEqual((outcome.figures, outcome.error), ([("us", "8", 0.5)], "no memory"))

    def test_a_crash_and_a_program_that_is_not_there_are_errors(self):
        self.assertIn("signal 9", self.run_shell("kill -9 $$").error)
        self.assertIn("No such file", running.run(["/nonexistent/program"], {}, 30).error)
        self.assertIn("no figures", self.run_shell("true").error)
        self.assertEqual(self.run_shell("exit 77").error, "not offered")

    def test_a_run_that_does_not_end_is_ended_with_all_its_processes(self):
        outcome = self.run_shell("echo figure us 8 0.5; setsid sleep 600 & sleep 600", 0.5)
        self.assertEqual((outcome.figures, outcome.error), ([("us", "8", 0.5)], "no end after 0.5 s"))

    def test_settings_of_the_shell_do_not_reach_the_peers(self):
        outcome = running.run(["env", "FI_PROVIDER=evil", sys.executable, "-c", "print('figure us 8 1')"], {}, 30)
        self.assertEqual(outcome.error, "")
        kept = running.environment({"FI_PROVIDER": "shm"})
        self.assertEqual(kept["FI_PROVIDER"], "shm")
        self.assertFalse([name for name in running.environment({}) if name.startswith(("FI_", "MPIR_", "I_MPI_", "UCX_"))])


if __name__ == "__main__":
    unittest.main()
