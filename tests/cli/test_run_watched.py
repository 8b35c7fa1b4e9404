"""`peerax run` shows what its ranks do: on a terminal while they do it, and in a file afterwards."""

import contextlib
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from peerax import Timeline
from tests.cli.programs import PRELUDE


class TestTrace:
    def test_file_has_the_timeline(self, run_program, tmp_path):
        done = run_program(
            PRELUDE + "jax.block_until_ready(jax.jit(on_ranks(shift))(x))\n", "--devices", "4", "--trace", "t.json"
        )
        assert done.returncode == 0, done.stderr
        assert "peerax trace t.json shows them" in done.stderr
        timeline = Timeline.from_json((tmp_path / "t.json").read_text())
        assert timeline.origin == "measured" and timeline.size == 4 and timeline.messages

    def test_what_a_failed_run_did(self, run_program, tmp_path):
        text = (
            PRELUDE
            + "jax.block_until_ready(jax.jit(on_ranks(lambda x: lax.precv(lax.create_token(), x, 'x', RIGHT)))(x))\n"
        )
        done = run_program(text, "--devices", "4", "--trace=t.json")
        assert done.returncode == 1 and "PX202" in done.stderr
        assert Timeline.from_json((tmp_path / "t.json").read_text()).stuck

    def test_file_that_cannot_be_written(self, run_program):
        done = run_program("print('ran')", "--trace", "missing/t.json")
        assert (done.returncode, done.stdout) == (2, "")
        assert "peerax run: cannot write the trace to 'missing/t.json': No such file or directory" in done.stderr

    @pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no file here that is always full")
    def test_file_that_is_full_at_the_end(self, run_program):
        done = run_program("print('ran')", "--trace", "/dev/full")
        assert (done.returncode, done.stdout) == (1, "ran\n")
        assert "peerax: cannot write the trace to '/dev/full': No space left on device" in done.stderr
        assert "Traceback" not in done.stderr

    def test_script_that_opens_one_itself(self, run_program):
        done = run_program("import peerax\nwith peerax.trace():\n    pass\n", "--trace", "t.json")
        assert done.returncode == 1
        assert "RuntimeError: another trace is open already, a peerax.trace() or that of peerax run" in done.stderr


LATE = """
import time
print("start")
late = lambda x: (time.sleep(8), x)[1]
def body(x):
    x = lax.cond(lax.axis_index("x") == 0, lambda x: jax.pure_callback(late, x, x), lambda x: x, x)
    return lax.precv(lax.psend(x, "x", [(0, 1)]), x, "x", [(0, 1)])
jax.block_until_ready(jax.jit(on_ranks(body))(x))
print("end")
"""


@pytest.mark.parametrize("quiet", [False, True])
def test_progress_on_a_terminal(tmp_path, quiet):
    (tmp_path / "program.py").write_text(PRELUDE + LATE)
    words = ["-m", "peerax", "run", "--devices", "4", *(["--quiet"] if quiet else []), str(tmp_path / "program.py")]
    ours, terminal = pty.openpty()
    process = subprocess.Popen([sys.executable, *words], stdin=subprocess.DEVNULL, stdout=terminal, stderr=terminal)
    os.close(terminal)
    shown = []
    with contextlib.suppress(OSError):  # that is how a terminal ends
        while chunk := os.read(ours, 4096):
            shown.append(chunk)
    os.close(ours)
    assert process.wait(timeout=60) == 0
    text = b"".join(shown).decode()
    assert (" s; the ranks:" in text) != quiet
    assert ("rank 1: waits in precv" in text) != quiet
    # What was shown is gone when the script goes on.
    assert text.index("start") < text.rindex("end") and "the ranks:" not in text[text.rindex("end") :]


WHO_SENT_WHAT = r"""
data: 18 messages, 144 KiB in all

from \ to  0  1       2       3       all
0          .  48 KiB  .       .       48 KiB
1          .  .       48 KiB  .       48 KiB
2          .  .       .       48 KiB  48 KiB
3          .  .       .       .       .
all        .  48 KiB  48 KiB  48 KiB  144 KiB"""


def test_who_sent_what_in_the_example(peerax, tmp_path):
    example = Path(__file__).parents[2] / "examples" / "pipeline.py"
    done = peerax("run", "--devices", "4", "--trace", "t.json", str(example))
    assert done.returncode == 0, done.stderr
    timeline = Timeline.from_json((tmp_path / "t.json").read_text())
    assert timeline.matrix().table("data") == WHO_SENT_WHAT.lstrip()
    # Each stage receives before it sends, once for each microbatch.
    lines = {(span.rank, span.name): 0 for span in timeline.spans}
    for span in timeline.spans:
        lines[span.rank, span.name] += 1
    receives, sends = {(rank, "precv"): 6 for rank in (1, 2, 3)}, {(rank, "psend"): 6 for rank in (0, 1, 2)}
    assert lines == receives | sends
