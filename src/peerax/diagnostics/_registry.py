"""The codes: the single place for what a code is called and how it is fixed by default."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Code:
    """Name one kind of mistake.

    `title` is short enough for the first line of a message, and `help` is the fix in one line,
    used by a diagnostic that knows no better one.
    """

    code: str
    title: str
    help: str


# A code is never renumbered and its title never changes: programs and tests of others rely on both.
# Each code has a page in pages/, with the same title.
_ALL = (
    Code(
        "PX101",
        "axis name unknown here",
        "name an axis of the mesh that the surrounding jax.shard_map was given",
    ),
    Code(
        "PX102",
        "rank outside 0..size-1",
        "use ranks from 0 to size-1; write (rank + 1) % size if the perm should wrap around",
    ),
    Code(
        "PX103",
        "source or destination twice",
        "let each rank be a source at most once and a destination at most once, or use one psend per perm",
    ),
    Code(
        "PX104",
        "not inside manual axes",
        "call it inside jax.shard_map, with the axis among the axes that shard_map makes manual",
    ),
    Code(
        "PX105",
        "perm is not pairs of ints",
        "write the perm as a sequence of (source, destination) pairs of Python ints: [(0, 1), (1, 2)]",
    ),
    Code(
        "PX106",
        "dtype cannot be sent there",
        "convert the array to a numeric dtype that the backend can hold, and convert it back on arrival",
    ),
    Code(
        "PX107",
        "transformation not supported",
        "make it a pair by giving precv the token of its psend, or move it out of the transformation",
    ),
    Code(
        "PX108",
        "token or tag is not valid",
        "give a token that psend, create_token or order returned: peerax.create_token() makes a new one",
    ),
    Code(
        "PX109",
        "dimension cannot be split",
        "name with dim= the dimension that is split, and make it a multiple of the number of ranks",
    ),
    Code(
        "PX201",
        "send without receive",
        "add a precv with the same perm and tag on the destination, or remove the send",
    ),
    Code(
        "PX202",
        "receive without send",
        "add a psend with the same perm and tag on the source, before the point where it ends",
    ),
    Code(
        "PX203",
        "shapes differ",
        "give precv the shape of the array that psend sends",
    ),
    Code(
        "PX204",
        "dtypes differ",
        "give precv the dtype of the array that psend sends, and convert before or after",
    ),
    Code(
        "PX205",
        "tags crossed",
        "use the same tag on both ends of a message",
    ),
    Code(
        "PX206",
        "order is not fixed",
        "let one operation depend on the other, or give the program to peerax, which keeps the order as it is written",
    ),
    Code(
        "PX207",
        "cycle: hangs always",
        "let one rank of the cycle send before it receives, or make each exchange a pair",
    ),
    Code(
        "PX208",
        "cycle: hangs without buffers",
        "make each exchange a pair by giving precv the token of its psend, or let one rank of the cycle receive first",
    ),
    Code(
        "PX209",
        "collective not joined by all, or other kind",
        "move the collective out of the rank-dependent branch, so that every rank calls the same one",
    ),
    Code(
        "PX210",
        "ranks may take different branches",
        "make the predicate the same on all ranks, for example with psum, or communicate outside of the branch",
    ),
    Code(
        "PX211",
        "cannot decide",
        "communicate the same in each branch, and in each iteration as many sends as receives on every channel",
    ),
    Code(
        "PX212",
        "axis tuple not in mesh order",
        "name the axes in the mesh's order, and number the ranks in that order",
    ),
    Code(
        "PX213",
        "separate operation on a backend that has pairs only",
        "make it a pair: give precv the token of the psend with the same perm and tag",
    ),
    Code(
        "PX214",
        "receive not linked to what is differentiated",
        "put both ends of the message into the function that is differentiated",
    ),
    Code(
        "PX301",
        "wait limit reached",
        "find out what the rank waited for is doing, or raise the limit with PEERAX_TIMEOUT_S (seconds)",
    ),
    Code(
        "PX302",
        "deadlock",
        "make each exchange a pair by giving precv the token of its psend; or where all ranks of the cycle receive "
        "first, let one send first, and where all send first, let one receive first",
    ),
    Code(
        "PX303",
        "message left over",
        "receive as often as is sent on the channel, or send less",
    ),
    Code(
        "PX304",
        "shape or dtype differ at run time",
        "give precv the shape and dtype of the array that the other end sends",
    ),
    Code(
        "PX307",
        "buffered bytes over the limit",
        "receive messages sooner after they are sent, or raise the limit with PEERAX_BUFFER_BYTES",
    ),
    Code(
        "PX308",
        "program started inside a callback",
        "call the inner function directly, as a part of the outer program, or run it before or after that program",
    ),
    Code(
        "PX401",
        "extension cannot load",
        "install a wheel of peerax made for this Python and platform: pip install --force-reinstall peerax",
    ),
    Code(
        "PX402",
        "transport not available",
        "run it on CPU devices of one process, or compile it for cuda, rocm or tpu",
    ),
    Code(
        "PX403",
        "target not available",
        "name a target such as h100:8 or v5e:2x4, and install the package that compiles for it",
    ),
    Code(
        "PX404",
        "environment variable is not valid",
        "correct the variable, or remove it from the environment to get the default",
    ),
)

CODES: dict[str, Code] = {entry.code: entry for entry in _ALL}
