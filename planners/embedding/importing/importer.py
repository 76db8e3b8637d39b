"""Imports embedding tables from CSV and Parquet files, and from torchrec models."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from harness.contract import Imported, ImportRequest, UsageError, read_file, unknown
from planners.embedding.importing.drafts import Draft, Notes, finished, sentences
from planners.embedding.inventory import inventory_of
from planners.embedding.tables.files import (
    FIELDS,
    SUFFIXES,
    as_text,
    cells_of,
    content_of,
    is_table_file,
    parse_tables,
)

_FORMATS = ("csv", "parquet", "model")
_BY_SUFFIX = {
    **dict.fromkeys((".csv", ".tsv", ".txt"), "csv"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
}
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
# Torchrec's and fbgemm's kinds of pooling.
_LOOKUPS = {"sum": "pooled", "mean": "pooled", "none": "sequence"}
_NEEDED = ("rows", "dim")
_THOUSANDS = re.compile(r"\d{1,3}(,\d{3})+")


def read(request: ImportRequest) -> Imported:
    """Return an imported source as the content of a file of tables, with notes on assumptions.

    Raises UsageError for a source that cannot be used, or an unknown format, field or column.
    """
    if not is_table_file(request.target):
        raise UsageError(f"{request.target}: a file of tables must end in {' or '.join(SUFFIXES)}.")
    for field in (*request.columns, *request.assumed):
        if field not in FIELDS:
            raise unknown("field", field, FIELDS)
    kind = _format(request)
    if request.columns and kind == "model":
        raise UsageError(f"--column is for CSV and Parquet files; {request.source} has no columns.")
    if "name" in request.assumed:
        raise UsageError("A name cannot be assumed; tables without one are numbered.")
    notes = Notes()
    if kind == "model":
        from planners.embedding.importing import torchrec_model

        drafts = torchrec_model.drafts_of(request, notes)
    else:
        drafts = _drafts(request, kind == "parquet", notes)
    tables = finished(drafts, request.source, notes)
    content = content_of(tables, request.target)
    if parse_tables(content, request.target) != tables:  # every written file can be read
        raise AssertionError(f"{request.source} reads otherwise once it is written")
    return Imported(
        content,
        inventory_of(tables, f"Tables of {request.source}"),
        *map(sentences, (notes.assumed, notes.changed, notes.left_out)),
    )


def _format(request: ImportRequest) -> str:
    source, kind = request.source, request.format
    is_function = _FUNCTION.fullmatch(source) is not None
    if not kind:
        kind = "model" if is_function else _BY_SUFFIX.get(Path(source).suffix.lower(), "")
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


def _drafts(request: ImportRequest, is_parquet: bool, notes: Notes) -> Iterator[Draft]:
    """Yield a Draft for each row of a file; raises UsageError for unclear or missing columns."""
    source, assumed = request.source, request.assumed
    rows = cells_of(read_file(source), source, is_parquet=is_parquet, delimiters=",;\t")
    columns = [as_text(cell) for cell in next(rows)]
    places = _places(columns, source, request.columns)
    for field in _NEEDED:
        if field not in places and field not in assumed:
            raise UsageError(
                f"{source}: no column is called like {field}; name it with --column {field}=..., "
                f"or its value with --assume {field}=...; the columns are "
                f"{', '.join(columns) or 'none'}."
            )
    others = {"pooling_factor": "1", "dtype": "fp32", "lookup": "pooled", **assumed}
    for number, row in enumerate(rows):
        texts = {field: _text(row[at]) if at < len(row) else "" for field, at in places.items()}
        name = texts.get("name") or f"table_{number}"
        for field, text in others.items():
            if not texts.get(field):
                texts[field] = text
                reason = f"{field} {text} where {source} does not say it"
                notes.assumed[reason].append(name if field in places else "every table")
        lookup = texts["lookup"].lower()
        yield Draft(
            f"{source}, row {number + 1}",
            name,
            _plain_number(texts.get("rows", "")),
            _plain_number(texts.get("dim", "")),
            texts["pooling_factor"],
            texts["dtype"],
            _LOOKUPS.get(lookup, lookup),
        )


def _text(cell: object) -> str:
    return "|".join(map(str, cell)) if isinstance(cell, list) else as_text(cell)


def _plain_number(text: str) -> str:
    """Remove a plus sign, leading zeros and thousands separators from the text of a number."""
    text = re.sub(r"^\+?0*(?=\d)", "", text)
    return text.replace(",", "") if _THOUSANDS.fullmatch(text) else text


def _places(columns: Sequence[str], source: str, chosen: Mapping[str, str]) -> dict[str, int]:
    """Return the index of the column of each field, chosen by the user or found by its name."""
    for field, column in chosen.items():
        if column not in columns:
            raise unknown(f"column of {source} for {field},", column, columns)
    places = {field: columns.index(column) for field, column in chosen.items()}
    plain = [re.sub(r"[\W_]+", "_", column.strip().lower()).strip("_") for column in columns]
    for field, synonyms in _SYNONYMS.items():
        if field in places:
            continue
        named = [
            number
            for number, column in enumerate(plain)
            if column in synonyms.split() and number not in places.values()
        ]
        exact = [number for number in named if columns[number] == field]
        usable = exact if len(exact) == 1 else named
        if len(usable) > 1:
            several = ", ".join(columns[number] for number in usable)
            raise UsageError(
                f"{source}: {field} may be any of the columns {several}; say which with "
                f"--column {field}={columns[usable[0]]}."
            )
        if usable:
            places[field] = usable[0]
    return places
