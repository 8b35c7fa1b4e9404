"""The rules: the single place for their codes, names and fixes."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Rule:
    """Name one kind of mistake. A rule that is not a default has to be selected."""

    code: str
    name: str
    title: str
    help: str
    severity: Literal["error", "warning", "note"] = "error"
    default: bool = True


# A code is never renumbered and never changes its meaning. docs/linting.md has a section for each.
_ALL = (
    Rule(
        "PXL001",
        "outside-shard-map",
        "psend or precv outside of shard_map",
        "call it in a function that is given to jax.shard_map, with the axis among the manual axes",
    ),
    Rule(
        "PXL002",
        "send-never-received",
        "psend that nothing receives",
        "give its token to a precv with the same perm, or add a precv with that perm",
    ),
    Rule(
        "PXL003",
        "token-before-it-exists",
        "token used before it exists",
        "put the psend in front of the precv, or begin with peerax.create_token()",
    ),
    Rule(
        "PXL004",
        "rank-twice-in-perm",
        "source or destination twice in a perm",
        "let each rank be a source at most once and a destination at most once",
    ),
    Rule(
        "PXL005",
        "rank-outside-axis",
        "rank in a perm that the axis does not have",
        "use ranks from 0 to size-1; leave the pair out at the end of a chain, or write (rank + 1) % size for a ring",
    ),
    Rule(
        "PXL006",
        "perm-of-all-devices",
        "perm for all devices on an axis of fewer",
        'take the size from the axis: jax.lax.axis_size("x"), or mesh.shape["x"]',
    ),
    Rule(
        "PXL007",
        "ring-for-chain",
        "ring whose last message is thrown away",
        "leave out the pair that closes the ring: [(i, i + 1) for i in range(size - 1)]",
        severity="note",
        default=False,
    ),
    Rule(
        "PXL008",
        "no-backend-guard",
        "jax.lax.psend or precv without a guard for the backend",
        'use peerax.psend and precv, which run on every backend, or guard with peerax.require_backend("gpu")',
        severity="warning",
    ),
    Rule(
        "PXL009",
        "deprecated-lax-operation",
        "jax.lax.psend or precv, which are deprecated",
        "use those of peerax, which have the same signature: peerax lint --fix",
        severity="warning",
    ),
    Rule(
        "PXL010",
        "iota-as-rank",
        "iota of the local array taken for the rank",
        'use jax.lax.axis_index("x"): in shard_map an iota counts from 0 on every rank',
    ),
    Rule(
        "PXL011",
        "collective-in-branch",
        "collective in a branch that not all ranks take",
        "move the collective out of the branch, so that every rank calls it; select its operand with jnp.where",
    ),
    Rule(
        "PXL012",
        "receive-never-sent",
        "precv that nothing sends to",
        "give it the token of the psend with its perm, or add a psend with that perm",
    ),
)

RULES: dict[str, Rule] = {rule.code: rule for rule in _ALL}


def expand(selectors: list[str], where: str) -> set[str]:
    """Return the codes that are meant by codes, beginnings of codes, and ALL.

    Raises:
        ValueError: if one of them means none.
    """
    codes: set[str] = set()
    for selector in selectors:
        name = selector.strip().upper()
        chosen = (
            set(RULES)
            if name == "ALL"
            else {code for code in RULES if name.startswith("PXL") and code.startswith(name)}
        )
        if not chosen:
            raise ValueError(f"{where}: there is no rule {selector!r}; the rules are {', '.join(RULES)}, and ALL")
        codes |= chosen
    return codes
