"""Tables of somebody else's CSV or Parquet file, whatever its columns are called."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from harness.contract import ImportRequest, UsageError, read_file, unknown
from planners.embedding.importing.drafts import Draft, Notes, known_dtype
from planners.embedding.tables.files import as_text, cells_of

# As torchrec, FBGEMM, TorchEasyRec, DLRM, HugeCTR, Merlin and published lists call them.
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
}
FIELDS = tuple(SYNONYMS)
_NEEDED = ("rows", "dim")
_THOUSANDS = re.compile(r"\d{1,3}(,\d{3})+")


def drafts_of(request: ImportRequest, is_parquet: bool, notes: Notes) -> Iterator[Draft]:
    """Yield the table of each row of a file; raises UsageError for cells or columns in doubt."""
    source, assumed = request.source, request.assumed
    rows = cells_of(read_file(source), source, is_parquet=is_parquet, delimiters=",;\t")
    columns = [as_text(cell) for cell in next(rows)]
    places = _places(columns, source, request.columns)
    for role in _NEEDED:
        if role not in places and role not in assumed:
            raise UsageError(
                f"{source}: no column is called like {role}; name it with --column {role}=..., or "
                f"its value with --assume {role}=...; the columns are "
                f"{', '.join(columns) or 'none'}."
            )
    others = {"pooling_factor": "1", "dtype": "fp32", **assumed}
    for number, row in enumerate(rows):
        place = f"{source}, row {number + 1}"
        texts = {role: _text(row[at]) if at < len(row) else "" for role, at in places.items()}
        name = texts.get("name", "")
        called = name or f"table_{number}"
        for role, text in others.items():
            if not texts.get(role):
                texts[role] = text
                reason = f"{role} {text} where {source} does not say it"
                notes.assumed[reason].append(called if role in places else "every table")
        if dtype := known_dtype(texts["dtype"], called, notes):
            row_count, dim = (whole(texts.get(role, ""), place, role) for role in _NEEDED)
            pooling = factors(texts["pooling_factor"], place)
            yield Draft(place, name, row_count, dim, pooling, dtype)


def _text(cell: object) -> str:
    return "|".join(map(str, cell)) if isinstance(cell, list) else as_text(cell)


def whole(text: str, place: str, role: str) -> int:
    """Return a whole number, also as 1e6, 1000.0 or 1,000,000; raises UsageError."""
    if not text:
        raise UsageError(f"{place}: {role} is missing.")
    if _THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    try:
        if re.fullmatch(r"[+-]?\d+", text, re.ASCII):
            return int(text)
        number = float(text)
        if not math.isfinite(number) or not number.is_integer() or "_" in text:
            raise ValueError(text)
    except ValueError:
        raise UsageError(f"{place}: {role} must be a whole number, not '{text}'.") from None
    return int(number)


def factors(text: str, place: str) -> tuple[float, ...]:
    """Return the pooling factors in a cell, one for each feature; raises UsageError."""
    try:
        found = tuple(float(part) for part in text.split("|"))
        if not all(map(math.isfinite, found)) or "_" in text:
            raise ValueError(text)
    except ValueError:
        raise UsageError(
            f"{place}: pooling_factor must be a positive number, or one per feature with '|' "
            f"between them, not '{text}'."
        ) from None
    return found


def _places(columns: Sequence[str], source: str, chosen: Mapping[str, str]) -> dict[str, int]:
    """Return the number of the column that holds each field, as chosen or by its name."""
    for role, column in chosen.items():
        if column not in columns:
            raise unknown(f"column of {source} for {role},", column, columns)
    places = {role: columns.index(column) for role, column in chosen.items()}
    plain = [re.sub(r"[\W_]+", "_", column.strip().lower()).strip("_") for column in columns]
    for role, synonyms in SYNONYMS.items():
        if role in places:
            continue
        found = [
            number
            for number, column in enumerate(plain)
            if column in synonyms.split() and number not in places.values()
        ]
        exact = [number for number in found if columns[number] == role]
        if len(exact) == 1:
            found = exact
        if len(found) > 1:
            several = ", ".join(columns[number] for number in found)
            raise UsageError(
                f"{source}: {role} may be any of the columns {several}; say which with "
                f"--column {role}={columns[found[0]]}."
            )
        if found:
            places[role] = found[0]
    return places
