"""The report of a hang of 64 ranks fits on a screen, and names whoever is at fault rather than who waits."""

import json
import os
import pathlib

from tests.ranks import site
from tests.runtime.programs import many_ranks

ROOT = pathlib.Path(__file__).parents[2]
MOST_LINES = 40

# The code, the comment at the line, and what names who is at fault.
ROWS = {
    "skips_a_send": ("PX202", "RECEIVE", "time 4) for float32[2] from rank 17, which finished without sending it"),
    "each_waits_for_the_one_before": ("PX202", "", "for float32[2] from rank 17, which finished without sending it"),
    "never_joins": ("PX209", "SUM", "for rank 40, which finished without joining it"),
    "every_other_joins": ("PX209", "SUM", "for ranks 1, 3, 5, 7, 9, 11, 13, 15 and 24 more, which finished"),
    "ring_of_separate_sends": ("PX302", "SEND", "rank 63: waits in psend"),
    "one_computes": ("PX301", "", "waits for rank 60: computes, after psend"),
}
# What all ranks are doing is there as well.
GRIDS = {
    "each_waits_for_the_one_before": ["ranks 0-17: finished", "ranks 18-63: waits in precv"],
    "never_joins": ["ranks 0-39: waits at psum", "rank 40: finished", "ranks 41-63: waits at psum"],
    "ring_of_separate_sends": ["ranks 0-62: waits in psend", "until the rank after it receives float32[2]"],
    "one_computes": ["rank 60: computes", "ranks 61-63: finished", "ranks 0-59: waits in precv"],
}


def test_reports_of_64_ranks(run_python):
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))
    code = "from tests.runtime.programs import many_ranks\nmany_ranks.print_reports()\n"
    done = run_python(code, devices=many_ranks.SIZE, env={"PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    reports = json.loads(done.stdout)
    assert reports.keys() == ROWS.keys()
    for name, (code, mark, fault) in ROWS.items():
        report = reports[name]
        assert code in report and fault in report, report
        assert len(report.splitlines()) <= MOST_LINES, report
        if mark:
            assert site(getattr(many_ranks, name), mark) in report, report
        for words in GRIDS.get(name, []):
            assert words in report, report
