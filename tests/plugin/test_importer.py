"""Who imported JAX, from made-up modules in the order in which their imports ended."""

from types import ModuleType

import jax
import pytest
from jax import jit

from pytest_peerax._importer import importer_of_jax


def modules(text, **globals_of):
    """Return modules of these names, in this order, with these globals."""
    made = {}
    for name in text.split():
        made[name] = ModuleType(name)
        made[name].__file__ = f"/{name}.py"
        vars(made[name]).update(globals_of.get(name, {}))
    return made


PLUGINS = {"first": "first_name", "second": "second_name", "last": "last_name"}
BEFORE = "__main__ site _pytest.config pytest first numpy jax.numpy jax"


@pytest.mark.parametrize("value", [jax, jax.numpy, jit, jax.Array], ids=["module", "submodule", "function", "class"])
def test_a_plugin(value):
    there = modules(f"{BEFORE} other second last", second={"x": value}, last={"jax": jax})
    assert importer_of_jax(there, PLUGINS) == "by the plugin second_name (/second.py)"


def test_a_plugin_that_imports_it_in_a_function():
    for helper in ({}, {"helper": {"jax": jax}}):
        there = modules(f"{BEFORE} second helper last", **helper)
        assert importer_of_jax(there, PLUGINS) == "by the plugin second_name (/second.py)"


def test_a_module_that_a_plugin_imports():
    there = modules(f"{BEFORE} helper second last", helper={"jnp": jax.numpy}, second={"jax": jax})
    assert (
        importer_of_jax(there, PLUGINS) == "by the plugin second_name (/second.py), which imports helper (/helper.py)"
    )


def test_modules_of_jax_do_not_count():
    there = modules(f"{BEFORE} jax.extend second", **{"jax.extend": {"jax": jax}})
    assert importer_of_jax(there, PLUGINS) == "by the plugin second_name (/second.py)"


def test_before_pytest():
    there = modules("__main__ jax helper site pytest _pytest.config first", helper={"jax": jax})
    assert importer_of_jax(there, PLUGINS) == "before pytest loaded its plugins, by helper (/helper.py)"
    there = modules("__main__ jax site pytest _pytest.config first")
    assert importer_of_jax(there, PLUGINS) == "before pytest loaded its plugins, for example by a sitecustomize"


def test_a_program_that_calls_pytest():
    there = modules(f"{BEFORE} second", __main__={"jax": jax}, second={"jax": jax})
    assert importer_of_jax(there, PLUGINS) == "by __main__ (/__main__.py)"


def test_what_stands_for_a_module_is_left_alone():
    there = {**modules(BEFORE), "odd": object(), "none": None, **modules("second", second={"jax": jax})}
    assert importer_of_jax(there, PLUGINS) == "by the plugin second_name (/second.py)"
