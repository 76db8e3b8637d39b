"""Reads table configurations from a torchrec model that a user's function returns."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import nn
from torchrec.modules.embedding_configs import BaseEmbeddingConfig
from torchrec.modules.embedding_modules import (
    EmbeddingBagCollectionInterface,
    EmbeddingCollectionInterface,
)

from harness.contract import UsageError, one_line
from planners.embedding.importing.drafts import Draft, Notes, known_dtype

_PLAIN = "nn.Embedding and nn.EmbeddingBag, which torchrec's planner does not place"


def drafts_of(source: str, pooling_factor: float, notes: Notes) -> Iterator[Draft]:
    """Yield a Draft for each table of the model or list of configs that `module:function` returns.

    Raises UsageError if the function is missing, raises an error, or returns another type.
    """
    made = _made_by(source)
    if isinstance(made, nn.Module):
        configs = list(_configs(made, notes))
    elif isinstance(made, list | tuple) and all(
        isinstance(config, BaseEmbeddingConfig) for config in made
    ):
        configs = list(made)
    else:
        raise UsageError(
            f"{source} must return a torch.nn.Module, or a list of torchrec's EmbeddingBagConfig, "
            f"not {type(made).__name__}."
        )
    for config in configs:
        if dtype := known_dtype(config.data_type.value, config.name, notes):
            reason = f"pooling factor {pooling_factor:g} for each feature, which no model holds"
            notes.assumed[reason].append("every table")
            yield Draft(
                f"{source}, table '{config.name}'",
                config.name,
                config.num_embeddings,
                config.embedding_dim,
                (pooling_factor,) * max(1, len(config.feature_names)),
                dtype,
            )


def _made_by(source: str) -> object:
    """Call `module:function` and return its result; the current folder is searched first."""
    module_name, _, function_name = source.partition(":")
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        found: Any = importlib.import_module(module_name)
        for part in function_name.split("."):
            found = getattr(found, part)
        if not callable(found):
            raise TypeError(f"{function_name} is no function")
        return found()
    except (Exception, SystemExit) as error:  # a user's code may raise anything
        raise UsageError(f"{source} could not be called: {one_line(error)}.") from None
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


def _configs(model: nn.Module, notes: Notes) -> Iterator[Any]:
    """Yield the table configs of a model's collections, except collections inside others."""
    waiting = [("", model)]
    visited: set[int] = set()
    while waiting:
        name, module = waiting.pop()
        if id(module) in visited:
            continue
        visited.add(id(module))
        if isinstance(module, EmbeddingBagCollectionInterface):
            yield from module.embedding_bag_configs()
        elif isinstance(module, EmbeddingCollectionInterface):
            yield from module.embedding_configs()
        elif isinstance(module, nn.Embedding | nn.EmbeddingBag):
            notes.left_out[_PLAIN].append(name or type(module).__name__)
        else:
            inner = [(f"{name}.{key}".lstrip("."), child) for key, child in module.named_children()]
            waiting += reversed(inner)
