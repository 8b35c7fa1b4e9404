"""The program: what each rank will do, printed, parsed and checked before it runs. Pure standard library."""

from peerax.verifier._check import check_program
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

__all__ = [
    "Branch",
    "Collective",
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
]
