"""The equations of a jaxpr in the order in which they run, and what each of them communicates."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from peerax import _jax
from peerax.diagnostics import Location, PeeraxError
from peerax.ops import location
from peerax.ops import reading as ops
from peerax.perm import check_perm

# Calls of code that nobody can look into, and what each device draws by itself.
OPAQUE = frozenset(
    {
        "pallas_call",
        "tpu_custom_call",
        "triton_kernel_call",
        "custom_call",
        "ffi_call",
        "pure_callback",
        "io_callback",
        "rng_uniform",
    }
)
# Results that are operands, on each rank the same ones.
PASS_ON = frozenset({"optimization_barrier", "pvary", "pcast", "sharding_constraint", "copy", "copy_p"})


def site_of(eqn) -> Location:
    """Return the user's line that an equation comes from."""
    if eqn.primitive in (ops.psend_p, ops.precv_p):
        return location(eqn.params["site"])
    found = _jax.equation_site(eqn)
    return ("<unknown>", 0) if found is None else location(ops.as_site(*found))


class Communication:
    """Says which equations communicate; it remembers what it has seen of a jaxpr."""

    def __init__(self) -> None:
        self._within: dict[int, tuple[Any, _Within]] = {}

    def within(self, eqn) -> bool:
        """Return whether any equation inside this one communicates."""
        return any(self._look(jaxpr).communicates for jaxpr in _jax.jaxprs_in(eqn.params))

    def within_jaxpr(self, jaxpr) -> bool:
        """Return whether any equation of a jaxpr communicates."""
        return self._look(jaxpr).communicates

    def opaque_within(self, eqn) -> bool:
        """Return whether any equation inside this one calls code that nobody can look into."""
        return any(self._look(jaxpr).opaque for jaxpr in _jax.jaxprs_in(eqn.params))

    def indexed_within(self, eqn) -> frozenset:
        """Return the axes along which an equation inside this one asks for the rank's index."""
        return frozenset().union(*(self._look(jaxpr).indexed for jaxpr in _jax.jaxprs_in(eqn.params)))

    def _look(self, jaxpr) -> "_Within":
        if id(jaxpr) not in self._within:
            found = _Within()
            for eqn in _jax.open_jaxpr(jaxpr)[0].eqns:
                found.communicates |= is_message(eqn) or ops.is_collective(eqn) or self.within(eqn)
                found.opaque |= eqn.primitive.name in OPAQUE or self.opaque_within(eqn)
                found.indexed |= self.indexed_within(eqn)
                if eqn.primitive.name == "axis_index":
                    found.indexed |= frozenset(axes_indexed(eqn))
            # The jaxpr is kept, so that no other one gets its identity.
            self._within[id(jaxpr)] = jaxpr, found
        return self._within[id(jaxpr)][1]


@dataclass
class _Within:
    """What is inside a jaxpr."""

    communicates: bool = False
    opaque: bool = False
    indexed: frozenset = frozenset()


def axes_indexed(eqn) -> tuple:
    """Return the axes of an axis_index."""
    axes = eqn.params["axis_name"]
    return axes if isinstance(axes, tuple) else (axes,)


def is_message(eqn) -> bool:
    """Return whether an equation is a psend or precv, of peerax or of jax.lax."""
    return eqn.primitive in (ops.psend_p, ops.precv_p) or eqn.primitive.name in ("psend", "precv")


def has_raw(jaxpr) -> bool:
    """Return whether a psend or precv of jax.lax is anywhere in a jaxpr."""
    ours = (ops.psend_p, ops.precv_p)
    return any(
        (is_message(eqn) and eqn.primitive not in ours) or any(map(has_raw, _jax.jaxprs_in(eqn.params)))
        for eqn in _jax.open_jaxpr(jaxpr)[0].eqns
    )


def as_ours(eqn, ranks: ops.Ranks) -> Any:
    """Return a psend or precv of jax.lax as one of peerax; other equations as they are."""
    name = eqn.primitive.name
    if name not in ("psend", "precv") or eqn.primitive in (ops.psend_p, ops.precv_p):
        return eqn
    line = site_of(eqn)
    axes = eqn.params["axis_name"]
    axes = axes if isinstance(axes, tuple) else (axes,)
    _check_axes(axes, ranks, name, line)
    aval = eqn.invars[0].aval if name == "psend" else eqn.outvars[0].aval
    params = {
        "axes": axes,
        "perm": check_perm(eqn.params["perm"], ranks.length(axes), line),
        "tag": 0,
        "path": "",
        "types": (ops.type_name(aval.shape, aval.dtype),),
        "shapes": ((aval.shape, aval.dtype),),
        "specs": (None,),
        "site": f"{line[0]}:{line[1]}",
    }
    return eqn.replace(primitive=ops.psend_p if name == "psend" else ops.precv_p, params=params)


def _check_axes(axes: tuple, ranks: ops.Ranks, name: str, line: Location) -> None:
    unknown = [axis for axis in axes if axis not in ranks.axis_names]
    if unknown:
        raise PeeraxError.of(
            "PX101",
            f"{name} over {unknown[0]!r}, but the axes here are {', '.join(map(repr, ranks.axis_names))}",
            locations=(line,),
        )
    if ranks.in_mesh_order(axes) != axes:
        raise PeeraxError.of(
            "PX212", f"{name} over {axes}, but the mesh's order is {ranks.in_mesh_order(axes)}", locations=(line,)
        )


def sums_last(jaxpr) -> tuple[Any, list[int]]:
    """Return a body as peerax lowers it, and the positions of what runs at its end.

    That is sums of cotangents which can wait, and what depends on them.
    """
    if not ops.are_in_the_way(jaxpr) or not ops.has_sums(jaxpr):
        return jaxpr, []
    part, late = ops.put_sums_last(jaxpr)
    put_off: list[int] = []
    results: set[Any] = set()
    for i, eqn in enumerate(part.eqns):
        if i in late or any(not isinstance(v, _jax.Literal) and v in results for v in ops.uses(eqn)):
            put_off.append(i)
            results.update(eqn.outvars)
    return part, put_off


def operand_types(eqn) -> tuple[str, ...]:
    """Return the types of what a collective is given."""
    return tuple(ops.type_name(v.aval.shape, v.aval.dtype) for v in eqn.invars if hasattr(v.aval, "dtype"))


def collective_name(eqn) -> str:
    """Return the name of a collective as the user knows it; all members must name the same one."""
    name = eqn.primitive.name.removesuffix("_invariant")
    if "perm" in eqn.params:
        name += "".join(["[", ",".join(f"{source}>{destination}" for source, destination in eqn.params["perm"]), "]"])
    return name


def pairs_of(jaxpr, equations: Sequence[Any]) -> dict[int, int]:
    """Return the positions of the pairs of one scope."""
    return jaxpr.find_pairs() if isinstance(jaxpr, ops.Part) else ops.find_pairs(equations)
