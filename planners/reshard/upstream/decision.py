"""A Resharder's decision: the programs as it leaves them."""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

# Python frames, which differ between ways to insert the same op.
_LEFT_OUT = {"op_callstack"}


def check_mirror(program: Any) -> None:
    """Raise RuntimeError where the Python copy of a block differs from the C++ one."""
    for block in program.blocks:
        ops = [block.desc.op(index) for index in range(block.desc.op_size())]
        if [op.desc for op in block.ops] != ops:
            raise RuntimeError("the ops of the Python block are not those of the C++ block")
        if set(block.vars) != {variable.name() for variable in block.desc.all_vars()}:
            raise RuntimeError("the variables of the Python block are not those of the C++ block")


def fingerprint(main: Any, startup: Any) -> str:
    """Return a hash of a step and its start: all ops with attributes, names of variables."""
    digest = hashlib.sha256()
    for program in (main, startup):
        for block in program.blocks:
            for line in _lines(block):
                digest.update(f"{line}\n".encode())
    return digest.hexdigest()


def _lines(block: Any) -> Iterator[str]:
    yield json.dumps([block.idx, block.parent_idx, sorted(block.vars)])
    for op in block.ops:
        yield json.dumps(
            [
                op.type,
                {slot: op.input(slot) for slot in op.input_names},
                {slot: op.output(slot) for slot in op.output_names},
                {name: op.attr(name) for name in op.attr_names if name not in _LEFT_OUT},
            ],
            sort_keys=True,
        )
