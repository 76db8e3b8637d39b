"""Reads table configurations from a torchrec model that a user's function returns."""

import importlib
import sys
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
from planners.embedding.importing.drafts import Draft, Notes
from planners.embedding.tables.files import Lookup, lookup_of, value_of

_PLAIN = "nn.Embedding and nn.EmbeddingBag, which torchrec's planner does not place"
_COLLECTIONS = (EmbeddingBagCollection, EmbeddingCollection)
# Fields of a table's configuration that the planner reads, and no file of tables has.
_SETTINGS = ("use_virtual_table", "total_num_buckets", "stash_weights")


def drafts_of(request: ImportRequest, notes: Notes) -> Iterator[Draft]:
    """Yield a Draft for each table of the model or list of configs that `module:function` returns.

    Raises UsageError if the function is missing, raises an error, or returns another type.
    """
    source = request.source
    assumed = request.assumed.get("pooling_factor", "1")
    factors: tuple[float, ...] = value_of("pooling_factor", assumed, "--assume")
    if len(factors) != 1:
        raise UsageError("--assume: pooling_factor must be one number.")
    made = _made_by(source)
    if isinstance(made, nn.Module):
        configs = list(_configs(made, notes))
    elif isinstance(made, list | tuple) and all(
        isinstance(config, BaseEmbeddingConfig) for config in made
    ):
        configs = [
            (config, lookup_of(not isinstance(config, EmbeddingConfig), is_weighted=False))
            for config in made
        ]
        notes.assumed["lookups without weights, as a list of configs holds none"] = ["every table"]
    else:
        raise UsageError(
            f"{source} must return a torch.nn.Module, or a list of torchrec's EmbeddingBagConfig, "
            f"not {type(made).__name__}."
        )
    for config, lookup in configs:
        for setting in _SETTINGS:
            if getattr(config, setting, None):
                notes.left_out[f"{setting} of tables"].append(config.name)
        reason = f"pooling factor {factors[0]:g} for each feature, which no model holds"
        notes.assumed[reason].append("every table")
        yield Draft(
            f"{source}, table '{config.name}'",
            config.name,
            config.num_embeddings,
            config.embedding_dim,
            factors * max(1, len(config.feature_names)),
            config.data_type.value,
            lookup,
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


def _configs(model: nn.Module, notes: Notes) -> Iterator[tuple[Any, Lookup]]:
    """Yield the table configs of a model's collections, and their kinds of lookup.

    A collection inside another one is not read again. Notes name what is left out: torchrec's
    modules around a collection, such as managed collision, and optimizers of its weights.
    """
    waiting = [("", model, "")]
    visited: set[int] = set()
    while waiting:
        path, module, outer = waiting.pop()
        if id(module) in visited:
            continue
        visited.add(id(module))
        kind, is_pooled = type(module), isinstance(module, EmbeddingBagCollectionInterface)
        if kind.__module__.startswith("torchrec.modules.") and kind not in _COLLECTIONS:
            outer = kind.__name__
        if isinstance(module, nn.Embedding | nn.EmbeddingBag):
            notes.left_out[_PLAIN].append(path or kind.__name__)
        if not is_pooled and not isinstance(module, EmbeddingCollectionInterface):
            inner = [
                (f"{path}.{key}".lstrip("."), child, outer)
                for key, child in module.named_children()
            ]
            waiting += reversed(inner)
            continue
        collection: Any = module
        configs = (
            collection.embedding_bag_configs() if is_pooled else collection.embedding_configs()
        )
        names = [config.name for config in configs]
        if outer:
            notes.left_out[f"all of {outer} but its tables"] += names
        if any(hasattr(weight, "_optimizer_classes") for weight in module.parameters()):
            notes.left_out["the kinds of optimizers, whose state takes memory"] += names
        lookup = lookup_of(is_pooled, is_pooled and collection.is_weighted())
        yield from ((config, lookup) for config in configs)
