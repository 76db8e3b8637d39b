"""Imports embedding tables from CSV and Parquet files, and from torchrec models."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from harness.contract import Imported, ImportRequest, UsageError, printable, read_file, unknown
from planners.embedding.inventory import inventory_of
from planners.embedding.tables.files import (
    FIELDS,
    MOST_DIM,
    MOST_TABLES,
    SUFFIXES,
    Table,
    as_text,
    cells_of,
    content_of,
    is_table_file,
    value_of,
)

_FORMATS = ("csv", "parquet", "model")
_SUFFIXES = {".tsv": "csv", ".txt": "csv", ".csv": "csv", ".parquet": "parquet", ".pq": "parquet"}
_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
# Column names used by torchrec, FBGEMM, TorchEasyRec, DLRM, HugeCTR, Merlin and published lists.
_SYNONYMS = {
    "name": "name table table_name embedding embedding_name feature feature_name table_id",
    "rows": "rows num_rows n_rows num_embeddings hash_size hash_bucket_size num_buckets cardinality"
    " vocab_size vocabulary_size input_dim num_categories max_index",
    "dim": "dim embedding_dim embedding_dimension emb_dim embed_dim dimension embedding_size width"
    " output_dim ev_size",
    "pooling_factor": "pooling_factor pooling_factors pooling avg_pooling average_pooling"
    " mean_pooling mean_pooling_factor avg_pooling_factor mean_length avg_length average_length"
    " bag_size hotness nnz nnz_per_feature",
    "dtype": "dtype data_type precision weight_dtype weights_precision",
    "lookup": "lookup lookup_type pooling_type pooling_mode",
}
_DTYPES = {
    **dict.fromkeys(("fp32", "float32", "float", "f32", "torchfloat32", "32", "single"), "fp32"),
    **dict.fromkeys(("fp16", "float16", "half", "f16", "torchfloat16", "16"), "fp16"),
    **dict.fromkeys(("bf16", "bfloat16", "torchbfloat16"), "bf16"),
}
# Torchrec's and fbgemm's kinds of pooling.
_LOOKUPS = {"sum": "pooled", "mean": "pooled", "none": "sequence"}
_DEFAULTS = {"pooling_factor": "1", "dtype": "fp32", "lookup": "pooled"}
_THOUSANDS = re.compile(r"\d{1,3}(,\d{3})+")
_DIM_STEP = 4
_DIM = Annotated[int, Meta(ge=1, le=MOST_DIM, description=f"a whole number from 1 to {MOST_DIM:,}")]
# A cell that starts so is a formula in a spreadsheet; a line may be read as a comment.
_NOT_FIRST = "=+-@#"
_MOST_NAMED = 4
_MOST_LETTERS = 30

Notes = defaultdict[str, list[str]]
"""Names of tables or features, by the reason why they are assumed, changed or left out."""


def read(request: ImportRequest) -> Imported:
    """Return an imported source as the content of a file of tables, with notes on assumptions.

    Raises UsageError for a source that cannot be used, or an unknown format, field or column.
    """
    source, target = request.source, request.target
    if not is_table_file(target):
        raise UsageError(f"{target}: a file of tables must end in {' or '.join(SUFFIXES)}.")
    for field in (*request.columns, *request.assumed):
        if field not in FIELDS:
            raise unknown("field", field, FIELDS)
    kind = _format(request)
    if request.columns and kind == "model":
        raise UsageError(f"--column is for CSV and Parquet files; {source} has no columns.")
    if "name" in request.assumed:
        raise UsageError("A name cannot be assumed; tables without one are numbered.")
    assumed, changed, left_out = Notes(list), Notes(list), Notes(list)
    if kind == "model":
        from planners.embedding.importing.torchrec_model import tables_of

        rows = tables_of(request, assumed, left_out)
    else:
        rows = _rows(request, kind == "parquet", assumed)
    tables = _tables(rows, source, changed, left_out)
    return Imported(
        content_of(tables, target),
        inventory_of(tables, f"Tables of {source}"),
        *map(_sentences, (assumed, changed, left_out)),
    )


def _format(request: ImportRequest) -> str:
    """Return the source's format, as given or by its name."""
    source = request.source
    is_function = _FUNCTION.fullmatch(source) is not None
    by_name = "model" if is_function else _SUFFIXES.get(Path(source).suffix.lower(), "")
    kind = request.format or by_name
    if not kind:
        raise UsageError(
            f"The format of {source} cannot be told from its name; give it with --format "
            "csv or parquet, or import a model, such as one of TorchEasyRec, by module:function."
        )
    if kind not in _FORMATS:
        raise unknown("format", kind, _FORMATS)
    if kind == "model" and not is_function:
        raise UsageError(f"'{source}' must be module:function, such as my_model:build.")
    return kind


def _rows(
    request: ImportRequest, is_parquet: bool, assumed: Notes
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the place of each row of a file, for errors, and its cells as texts, by field.

    Raises UsageError for unclear or missing columns.
    """
    source = request.source
    rows = cells_of(read_file(source), source, is_parquet=is_parquet, delimiters=",;\t")
    columns = [as_text(cell) for cell in next(rows)]
    places = _places(columns, source, request.columns)
    for field in ("rows", "dim"):
        if field not in places and field not in request.assumed:
            raise UsageError(
                f"{source}: no column is called like {field}; name it with --column {field}=..., "
                f"or its value with --assume {field}=...; the columns are "
                f"{', '.join(columns) or 'none'}."
            )
    for number, row in enumerate(rows):
        cells = {field: _text(row[at]) for field, at in places.items() if at < len(row)}
        name = cells.get("name") or f"table_{number}"
        for field, text in {**_DEFAULTS, **request.assumed}.items():
            if not cells.get(field):
                cells[field] = text
                reason = f"{field} {text} where {source} does not say it"
                assumed[reason].append(name if field in places else "every table")
        for field in ("rows", "dim"):
            cells[field] = _plain_number(cells.get(field, ""))
        lookup = cells["lookup"].lower()
        cells["name"], cells["lookup"] = name, _LOOKUPS.get(lookup, lookup)
        yield f"{source}, row {number + 1}", cells


def _places(columns: Sequence[str], source: str, chosen: Mapping[str, str]) -> dict[str, int]:
    """Return the index of the column of each field, chosen by the user or recognized by name."""
    for field, column in chosen.items():
        if column not in columns:
            raise unknown(f"column of {source} for {field},", column, columns)
    places = {field: columns.index(column) for field, column in chosen.items()}
    plain = [re.sub(r"[\W_]+", "_", column.strip().lower()).strip("_") for column in columns]
    for field, synonyms in _SYNONYMS.items():
        if field in chosen:
            continue
        named = [
            number
            for number, column in enumerate(plain)
            if column in synonyms.split() and number not in places.values()
        ]
        exact = [number for number in named if columns[number] == field]
        usable = exact if len(exact) == 1 else named
        if len(usable) > 1:
            raise UsageError(
                f"{source}: {field} may be any of the columns "
                f"{', '.join(columns[number] for number in usable)}; say which with "
                f"--column {field}={columns[usable[0]]}."
            )
        if usable:
            places[field] = usable[0]
    return places


def _text(cell: object) -> str:
    return "|".join(map(str, cell)) if isinstance(cell, list) else as_text(cell)


def _plain_number(text: str) -> str:
    """Remove a plus sign, leading zeros and thousands separators from the text of a number."""
    text = re.sub(r"^\+?0*(?=\d)", "", text)
    return text.replace(",", "") if _THOUSANDS.fullmatch(text) else text


def _tables(
    rows: Iterable[tuple[str, Mapping[str, Any]]], source: str, changed: Notes, left_out: Notes
) -> tuple[Table, ...]:
    """Return valid tables; raises UsageError for an invalid row, no table or too many tables.

    Names that torch rejects and dims that fbgemm rejects are changed, and tables of other data
    types are left out; each with a note.
    """
    from torch import nn

    # Torch refuses names of attributes of its own modules, such as `type`.
    taken = set(dir(nn.ModuleDict()))
    numbers: dict[str, Iterator[int]] = defaultdict(lambda: count(2))
    tables: list[Table] = []
    for number, (place, row) in enumerate(rows):
        if number == MOST_TABLES:
            raise UsageError(f"{source} lists more tables than {MOST_TABLES:,}.")
        wanted = row["name"] or f"table_{number}"
        dtype = _DTYPES.get(re.sub(r"[\W_]", "", row["dtype"].lower()))
        if dtype is None:
            reason = f"tables of data type {row['dtype']}, which the planner here does not know"
            left_out[reason].append(wanted)
            continue
        name = _free_name(wanted, taken, numbers)
        if name != wanted:
            reason = "names were changed to unique ones that torch and files of tables take"
            changed[reason].append(f"{_short(wanted)} to {_short(name)}")
        given = value_of("dim", row["dim"], place, _DIM)
        dim = -(-given // _DIM_STEP) * _DIM_STEP
        if dim != given:
            reason = f"dim was rounded up to a multiple of {_DIM_STEP}, which fbgemm's kernels need"
            changed[reason].append(f"{wanted} {given} to {dim}")
        rows_number, factors, lookup = (
            value_of(field, row[field], place) for field in ("rows", "pooling_factor", "lookup")
        )
        tables.append(Table(name, rows_number, dim, factors, dtype, lookup))
    if not tables:
        reasons = "; ".join(_sentences(left_out))
        raise UsageError(
            f"{source} holds no embedding table{f' (left out: {reasons})' if reasons else ''}."
        )
    return tuple(tables)


def _free_name(name: str, taken: set[str], numbers: Mapping[str, Iterator[int]]) -> str:
    """Return a valid name similar to `name` that is not yet in `taken`, and add it there."""
    usable = "".join(letter if letter.isprintable() else "_" for letter in name.strip())
    usable = usable.replace(".", "_") or "_"
    if usable[0] in _NOT_FIRST:
        usable = f"_{usable}"
    free = usable
    while free in taken:
        free = f"{usable}_{next(numbers[usable])}"
    taken.add(free)
    return free


def _sentences(notes: Notes) -> tuple[str, ...]:
    """Return a sentence for each reason, with its first names and the number of the others."""
    sentences = []
    for reason, repeated in notes.items():
        names = list(dict.fromkeys(repeated))
        shown = [_short(name) for name in names[:_MOST_NAMED]]
        if len(names) > _MOST_NAMED:
            shown.append(f"and {len(names) - _MOST_NAMED:,} more")
        sentences.append(f"{reason}: {', '.join(shown)}")
    return tuple(sentences)


def _short(name: str) -> str:
    name = printable(name)
    return name if len(name) <= _MOST_LETTERS else f"{name[: _MOST_LETTERS - 1]}…"
