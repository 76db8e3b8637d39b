"""Tables of a torchrec model that a user's function makes: their configs, never their weights."""

import importlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from harness.contract import UsageError
from harness.model.errors import one_line
from planners.embedding.importing.drafts import Draft, Notes, dtype_of

_PLAIN = "nn.Embedding and nn.EmbeddingBag, which torchrec's planner does not place"


def made_by(source: str) -> object:
    """Return what `module:function` returns, the module found from the current folder first.

    Raises:
        UsageError: there is no such function, or it raised.
    """
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
    except (Exception, SystemExit) as error:  # somebody else's code may raise anything
        raise UsageError(f"{source} could not be called: {one_line(error)}.") from None
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


def drafts_of(made: object, source: str, pooling_factor: float, notes: Notes) -> Iterator[Draft]:
    """Yield the tables of a model, or of a list of torchrec's configs.

    Raises:
        UsageError: it is neither.
    """
    from torch import nn
    from torchrec.modules.embedding_configs import BaseEmbeddingConfig

    if isinstance(made, nn.Module):
        configs: Iterable[Any] = _configs(made, notes)
    elif isinstance(made, list | tuple) and all(
        isinstance(each, BaseEmbeddingConfig) for each in made
    ):
        configs = made
    else:
        raise UsageError(
            f"{source} must return a torch.nn.Module, or a list of torchrec's EmbeddingBagConfig, "
            f"not {type(made).__name__}."
        )
    for config in configs:
        dtype = dtype_of(config.data_type.value)
        if dtype is None:
            kind = f"tables of data type {config.data_type.value}, which the planner does not know"
            notes.leave_out(kind, config.name)
            continue
        features = max(1, len(config.feature_names))
        what = f"pooling factor {pooling_factor:g} for each feature, since no model tells it"
        notes.assume(what, "every table")
        yield Draft(
            f"{source}, table '{config.name}'",
            config.name,
            config.num_embeddings,
            config.embedding_dim,
            (pooling_factor,) * features,
            dtype,
        )


def _configs(model: Any, notes: Notes) -> Iterator[Any]:
    """Yield the configs of all collections in a model, an inner one once with its outer one."""
    from torch import nn
    from torchrec.modules.embedding_modules import (
        EmbeddingBagCollectionInterface,
        EmbeddingCollectionInterface,
    )

    waiting: list[tuple[str, nn.Module]] = [("", model)]
    seen: set[int] = set()
    while waiting:
        name, module = waiting.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        if isinstance(module, EmbeddingBagCollectionInterface):
            yield from module.embedding_bag_configs()
        elif isinstance(module, EmbeddingCollectionInterface):
            yield from module.embedding_configs()
        elif isinstance(module, nn.Embedding | nn.EmbeddingBag):
            notes.leave_out(_PLAIN, name or type(module).__name__)
        else:
            inner = [(f"{name}.{key}".lstrip("."), each) for key, each in module.named_children()]
            waiting += reversed(inner)
