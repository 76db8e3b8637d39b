"""Imports tables from a source, or returns the error that refuses it."""

import pytest

from harness.contract.workloads import Imported, ImportRequest
from harness.model.errors import UsageError
from planners.embedding.importing.importer import read
from planners.embedding.tables.files import Table, parse_tables


def imported(source: str, target: str = "tables.csv", **options) -> Imported:
    return read(ImportRequest(source, target, **options))


def tables_of(source: str, target: str = "tables.csv", **options) -> tuple[Table, ...]:
    return parse_tables(imported(source, target, **options).content, target)


def refusal(source: str, **options) -> str:
    with pytest.raises(UsageError) as caught:
        imported(source, **options)
    said = str(caught.value)
    assert said.isprintable()
    assert said.endswith((".", "?"))
    return said
