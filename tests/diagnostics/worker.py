"""Run programs one after the other in this process, and say how each ended. Started by executed.py.

Its words are the files of the programs and, last, the file for the outcomes: a line of JSON for each that has ended.
"""

import json
import os
import sys
import threading
import time
import traceback
import warnings

import jax

LIMIT_S = 60


def run(path: str) -> dict:
    """Run one program as `python PATH` would, and return its uncaught exception, if any."""
    with open(path, encoding="utf-8") as file:
        code = file.read()
    start_s = time.monotonic()
    try:
        exec(compile(code, path, "exec"), {"__name__": "__main__", "__file__": path})
    except BaseException as error:
        error.__traceback__ = error.__traceback__.tb_next  # without the frame of this function
        *_, (frame, line) = traceback.walk_tb(error.__traceback__)
        raised_at = [frame.f_code.co_filename, line]
        ends = isinstance(error, SystemExit)  # Python shows its text, and no traceback
        shown = f"{error}\n" if ends else "".join(traceback.format_exception(error))
        return {"exception": type(error).__name__, "message": str(error), "shown": shown, "raised_at": raised_at}
    finally:
        print(f"{time.monotonic() - start_s:.2f} s {path}", file=sys.stderr)
    return {"exception": None}


def run_apart(path: str) -> dict:
    """Run one program so that it leaves nothing behind: in a thread, to which JAX's contexts belong."""
    settings, environment, outcomes = dict(jax.config.values), dict(os.environ), []
    thread = threading.Thread(target=lambda: outcomes.append(run(path)), daemon=True)
    thread.start()
    thread.join(LIMIT_S)
    for name, value in settings.items():
        if jax.config.values[name] != value:
            jax.config.update(name, value)
    os.environ.clear()
    os.environ.update(environment)
    return outcomes[0] if outcomes else {"exception": "hang", "shown": f"not done after {LIMIT_S} s"}


def main() -> None:
    warnings.simplefilter("ignore")
    *paths, results = sys.argv[1:]
    for path in paths:
        outcome = run_apart(path)
        with open(results, "a", encoding="utf-8") as file:
            file.write(json.dumps({"path": path, **outcome}) + "\n")
        if outcome["exception"] == "hang":
            break  # what hangs would disturb the next one
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # what failed on a device raises its error once more where Python ends


main()
