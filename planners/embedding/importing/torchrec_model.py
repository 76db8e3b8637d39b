"""Reads table configurations from a torchrec model that a user's function returns."""

import importlib
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import nn
from torchrec.modules.embedding_configs import BaseEmbeddingConfig, EmbeddingConfig
from torchrec.modules.embedding_modules import (
    EmbeddingBagCollection,
    EmbeddingBagCollectionInterface,
    EmbeddingCollection,
    EmbeddingCollectionInterface,
)

from harness.contract import ImportRequest, UsageError, one_line
from planners.embedding.tables.files import Lookup, lookup_of, value_of
from planners.embedding.tables.torchrec_objects import configs_of

Notes = defaultdict[str, list[str]]

_COLLECTIONS = (EmbeddingBagCollection, EmbeddingCollection)
# Fields of a table's configuration that the planner reads, and no file of tables has.
_SETTINGS = ("use_virtual_table", "total_num_buckets", "stash_weights")


def tables_of(
    request: ImportRequest, assumed: Notes, left_out: Notes
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the place, for errors, and the fields of each table that `module:function` returns.

    The function returns a model, or a list of configurations. Notes are added to `assumed` and
    `left_out`. Raises UsageError if the function is missing, raises an error, or returns another
    type.
    """
    source = request.source
    text = request.assumed.get("pooling_factor", "1")
    factors: tuple[float, ...] = value_of("pooling_factor", text, "--assume")
    if len(factors) != 1:
        raise UsageError("--assume: pooling_factor must be one number.")
    made = _made_by(source)
    if isinstance(made, nn.Module):
        configs = list(_configs(made, left_out))
    elif isinstance(made, list | tuple) and all(
        isinstance(config, BaseEmbeddingConfig) for config in made
    ):
        configs = [
            (config, "sequence" if isinstance(config, EmbeddingConfig) else "pooled")
            for config in made
        ]
        assumed["lookups without weights, as a list of configs holds none"] = ["every table"]
    else:
        raise UsageError(
            f"{source} must return a torch.nn.Module, or a list of torchrec's EmbeddingBagConfig, "
            f"not {type(made).__name__}."
        )
    if configs:
        reason = f"pooling factor {factors[0]:g} for each feature, which no model holds"
        assumed[reason] = ["every table"]
    for config, lookup in configs:
        for setting in _SETTINGS:
            if getattr(config, setting, None):
                left_out[f"{setting} of tables"].append(config.name)
        yield (
            f"{source}, table '{config.name}'",
            {
                "name": config.name,
                "rows": config.num_embeddings,
                "dim": config.embedding_dim,
                "pooling_factor": factors * max(1, len(config.feature_names)),
                "dtype": config.data_type.value,
                "lookup": lookup,
            },
        )


def _made_by(source: str) -> object:
    """Call `module:function` and return its result; the current folder is searched first."""
    module_name, _, function_name = source.partition(":")
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        function: Any = importlib.import_module(module_name)
        for part in function_name.split("."):
            function = getattr(function, part)
        if not callable(function):
            raise TypeError(f"{function_name} is no function")
        return function()
    except (Exception, SystemExit) as error:  # a user's code may raise anything
        raise UsageError(f"{source} could not be called: {one_line(error)}.") from None
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


def _configs(model: nn.Module, left_out: Notes) -> Iterator[tuple[Any, Lookup]]:
    """Yield the table configurations of a model's collections, and their kinds of lookup.

    A collection inside another one is not read again. Left out are torchrec's modules around a
    collection, such as managed collision, and optimizers of its weights.
    """
    collections: tuple[str, ...] = ()  # how paths inside of them begin
    wrappers: dict[str, str] = {}  # the classes of torchrec's other modules, by the same
    for path, module in model.named_modules():
        prefix, kind = f"{path}." if path else "", type(module)
        if prefix.startswith(collections):
            continue
        if isinstance(module, nn.Embedding | nn.EmbeddingBag):
            reason = "nn.Embedding and nn.EmbeddingBag, which torchrec's planner does not place"
            left_out[reason].append(path or kind.__name__)
        if kind.__module__.startswith("torchrec.modules.") and kind not in _COLLECTIONS:
            wrappers[prefix] = kind.__name__
        is_pooled = isinstance(module, EmbeddingBagCollectionInterface)
        if is_pooled or isinstance(module, EmbeddingCollectionInterface):
            collections += (prefix,)
            configs = configs_of(module)
            names = [config.name for config in configs]
            around = [name for outer, name in wrappers.items() if prefix.startswith(outer)]
            if around:
                left_out[f"all of {around[-1]} but its tables"] += names
            if any(hasattr(weight, "_optimizer_classes") for weight in module.parameters()):
                left_out["the kinds of optimizers, whose state takes memory"] += names
            lookup = lookup_of(is_pooled, is_pooled and module.is_weighted())
            yield from ((config, lookup) for config in configs)
