"""Blocks of Markdown drawn from the results of machines with a GPU, in `record/gpu/`."""

from harness.model.files import read_file
from harness.suites.record import Record
from reports.core.formatting import names
from reports.docs import blocks
from reports.statements import gpus, provenance


def sentence(page: str = "estimates.md") -> str:
    """Return a sentence on the GPUs with results; `page` explains the command."""
    return gpus(blocks.FOLDER, f"[`make gpu`]({page}#on-a-gpu)")


def tables() -> str:
    """Return the tables that scripts printed on each machine; `sentence()` if there is none."""
    return "\n\n".join(map(_tables_of, _machines())) or sentence()


def gains() -> str:
    """Return each machine's speed-ups; `sentence()` if there is none."""
    return "\n\n".join(map(_gains_of, _machines())) or sentence()


def _machines() -> list[Record]:
    return Record.of_gpus(blocks.FOLDER / "gpu")


def _tables_of(machine: Record) -> str:
    shown, missing = [f"**{machine.gpu}.** {provenance(machine)}"], []
    for declared in machine.declared.table:
        file = machine.table_of(declared.name)
        if file.exists():
            shown += [f"`{declared.script}`:", read_file(file).decode().rstrip("\n")]
        else:
            missing.append(declared.script)
    return "\n\n".join([*shown, *_not_measured(missing)])


def _gains_of(machine: Record) -> str:
    cells = machine.cells()
    rows = [cell for cell in cells.values() if cell.variant != cell.against]
    measured = {str(cell.problem.workload) for cell in cells}
    wanted = [workload for study in machine.declared.study for workload in study.workloads]
    missing = [workload for workload in wanted if workload not in measured]
    table = blocks.gains_table(rows, cells)
    return "\n\n".join([f"**{machine.gpu}**:", table, *_not_measured(missing)])


def _not_measured(missing: list[str]) -> list[str]:
    return [f"Not measured there: {names(missing, len(missing))}."] if missing else []
