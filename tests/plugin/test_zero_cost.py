"""A project that knows nothing of peerax, in whose environment it is installed: nothing changes for it."""

import json
import statistics

RECORD = """
    import json
    import os
    import sys

    def pytest_sessionfinish():
        with open("seen.json", "w") as file:
            json.dump([sorted(sys.modules), dict(os.environ), [str(type(finder)) for finder in sys.meta_path]], file)
"""
PLUGIN = {"pytest_peerax", "pytest_peerax._fixtures"}


def seen(project, *args, plugin):
    """Return the modules, the environment and the finders at the end of a run."""
    result = project.run_tests(*args, plugin=plugin)
    assert result.ret == 0, result.outlines
    modules, environment, finders = json.loads((project.path / "seen.json").read_text())
    modules = {name for name in modules if "__editable__" not in name}
    return modules, {name: text for name, text in environment.items() if not name.startswith("PYTEST_")}, finders


def test_only_the_plugin_itself_is_imported(project):
    project.makeconftest(RECORD)
    project.makepyfile("def test(): pass")
    with_plugin, without = seen(project, plugin=True), seen(project, plugin=False)
    assert with_plugin[0] - without[0] == PLUGIN
    assert with_plugin[1:] == without[1:]


def test_a_project_that_uses_jax_has_none_of_our_hooks(project):
    project.makeconftest(RECORD)
    project.makepyfile("import jax\n\ndef test():\n    assert jax.jit(lambda x: x + 1)(1) == 2")
    modules, _, _ = seen(project, plugin=True)
    assert "jax" in modules
    assert {name for name in modules if name.partition(".")[0] in ("peerax", "pytest_peerax")} == PLUGIN


def test_start_up(project, record_property, capsys):
    """The figure is for the eye: on a busy machine it says little. CPU time, and the least of several, say most."""
    measure = "import time, pytest; pytest.main(['--collect-only', '-q', *{}]); print('cpu', time.process_time())"
    from tests.plugin.conftest import IS_INSTALLED

    on, off = ([], ["-p", "no:peerax"]) if IS_INSTALLED else (["-p", "pytest_peerax"], [])
    times = {True: [], False: []}
    for _ in range(5):
        for plugin, args in ((True, on), (False, off)):
            out = project.runpython_c(measure.format(args)).outlines
            times[plugin].append(float(out[-1].removeprefix("cpu ")) * 1e3)
    least = min(times[True]) - min(times[False])
    median = statistics.median(times[True]) - statistics.median(times[False])
    record_property("start_up_ms", least)
    with capsys.disabled():
        print(f"\nthe plugin's start-up: {least:.1f} ms of CPU (medians: {median:.1f} ms)")
    assert least < 100
