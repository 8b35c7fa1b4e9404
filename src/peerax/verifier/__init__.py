"""The program: what each rank will do, printed, parsed and checked before it runs. Pure standard library."""

from peerax.verifier._check import check_program
from peerax.verifier._cost import Cost
from peerax.verifier._findings import operation_name
from peerax.verifier._ir import (
    Branch,
    Collective,
    Exchange,
    Item,
    Loop,
    Operation,
    Process,
    Program,
    Recv,
    Send,
    Table,
    Unknown,
)
from peerax.verifier._report import Report
from peerax.verifier._simulate import simulate

__all__ = [
    "Branch",
    "Collective",
    "Cost",
    "Exchange",
    "Item",
    "Loop",
    "Operation",
    "Process",
    "Program",
    "Recv",
    "Report",
    "Send",
    "Table",
    "Unknown",
    "check_program",
    "operation_name",
    "simulate",
]
