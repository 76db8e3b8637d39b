"""Reads tables from any CSV or Parquet file, and recognizes columns by their usual names."""

import re
from collections.abc import Iterator, Mapping, Sequence

from harness.contract import ImportRequest, UsageError, read_file, unknown
from planners.embedding.importing.drafts import Draft, Notes, known_dtype
from planners.embedding.tables.files import as_text, cells_of

# Column names used by torchrec, FBGEMM, TorchEasyRec, DLRM, HugeCTR, Merlin and published lists.
SYNONYMS = {
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


def drafts_of(request: ImportRequest, is_parquet: bool, notes: Notes) -> Iterator[Draft]:
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
        called = texts.get("name") or f"table_{number}"
        for field, text in others.items():
            if not texts.get(field):
                texts[field] = text
                reason = f"{field} {text} where {source} does not say it"
                notes.assumed[reason].append(called if field in places else "every table")
        lookup = texts["lookup"].lower()
        if dtype := known_dtype(texts["dtype"], called, notes):
            yield Draft(
                f"{source}, row {number + 1}",
                texts.get("name", ""),
                plain_number(texts.get("rows", "")),
                plain_number(texts.get("dim", "")),
                texts["pooling_factor"],
                dtype,
                _LOOKUPS.get(lookup, lookup),
            )


def _text(cell: object) -> str:
    return "|".join(map(str, cell)) if isinstance(cell, list) else as_text(cell)


def plain_number(text: str) -> str:
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
    for field, synonyms in SYNONYMS.items():
        if field in places:
            continue
        found = [
            number
            for number, column in enumerate(plain)
            if column in synonyms.split() and number not in places.values()
        ]
        exact = [number for number in found if columns[number] == field]
        if len(exact) == 1:
            found = exact
        if len(found) > 1:
            several = ", ".join(columns[number] for number in found)
            raise UsageError(
                f"{source}: {field} may be any of the columns {several}; say which with "
                f"--column {field}={columns[found[0]]}."
            )
        if found:
            places[field] = found[0]
    return places
