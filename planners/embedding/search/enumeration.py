"""TorchRec's enumerator, sped up: it calls the estimators once per distinct shard."""

import copy
import math
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import cache, partial
from types import FunctionType
from typing import Any, cast

import torch
from torch import nn
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator, get_partition_by_type
from torchrec.distributed.planner.estimator.estimator import EmbeddingPerfEstimator
from torchrec.distributed.planner.estimator.types import HardwarePerfConfig
from torchrec.distributed.planner.shard_estimators import (
    EmbeddingPerfEstimator as CheckingPerfEstimator,
    EmbeddingStorageEstimator,
)
from torchrec.distributed.planner.types import ShardEstimator, ShardingOption
from torchrec.distributed.types import ModuleSharder, ShardingType
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection

from harness.contract import UsageError
from planners.embedding.search.estimation import Estimation, hashable
from planners.embedding.search.options import ShardLayout, SharedOption
from planners.instruments import replaced

# The names of torchrec's functions that cut a table into shards and that choose `partition_by`.
_CUT = "calculate_shard_sizes_and_offsets"
_BY_TYPE = "get_partition_by_type"


class _KeptOption(SharedOption):
    """An option that `deepcopy` does not copy, so that storing the search space is cheap."""

    def __deepcopy__(self, memo: dict[int, Any] | None) -> "_KeptOption":
        return self


class DistinctShardEnumerator(EmbeddingEnumerator):
    """Returns the same options and estimates as torchrec's enumerator, in less time.

    It creates shards when they are first read, and estimates each shard size once, for many tables
    in one call: see Estimation. If an estimator is not torchrec's own, or depends on several shards
    of an option, it creates all shards and estimates them one by one.

    `last_stored_search_space` contains the returned options, not copies; copy before setting ranks.
    `postponed` is a module with its sharders, or empty, to be enumerated if the options are read.
    Options with other kernels than `kernels` are left out, unless that is None.
    """

    kernels: frozenset[str] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._special: dict[int, set[str]] = {}
        self.postponed: tuple[Any, ...] = ()

    def enumerate(
        self, module: nn.Module, sharders: list[ModuleSharder[nn.Module]]
    ) -> list[ShardingOption]:
        """Return the same options as torchrec, in the same order and with the same estimates.

        Raises UsageError if a table has no option with any of the `kernels`.
        """
        self._special.clear()
        self.postponed = ()
        options: list[ShardingOption] = _enumerate_with_layouts()(self, module, sharders)
        for option in options:
            option.__class__ = SharedOption
        if self.kernels is None:
            return options
        kept = [option for option in options if option.compute_kernel in self.kernels]
        if lost := {option.fqn for option in options} - {option.fqn for option in kept}:
            raise UsageError(
                f"The machine was calibrated for kernels {', '.join(sorted(self.kernels))}, and "
                f"table {min(lost)} allows none of them."
            )
        self._last_stored_search_space = kept
        return kept

    def torchrecs(self) -> EmbeddingEnumerator:
        """Return torchrec's enumerator with the same settings, and without stored options."""
        made: Any = copy.copy(self)
        made.__class__ = EmbeddingEnumerator
        made._last_stored_module = None
        made.__dict__.pop("enumerate", None)  # a method that is replaced while a planner plans
        return made

    @property
    def last_stored_search_space(self) -> list[ShardingOption] | None:
        """The options of the last model, enumerated now if this was `postponed`."""
        if self.postponed:
            self.enumerate(*self.postponed)
        options: list[ShardingOption] | None = self._last_stored_search_space
        return options

    def populate_estimates(self, sharding_options: list[ShardingOption]) -> None:
        """Set the estimates of all shards; estimate only one shard per size if that suffices."""
        first = [option.shards[0].size for option in sharding_options if option.shards]
        layouts = [layout for layout in first if isinstance(layout, ShardLayout)]
        estimators = self._estimators
        failure: str | None = None
        with replaced(_remembered_annotations(estimators)):
            if len(layouts) < len(sharding_options):  # somebody else's options
                super().populate_estimates(sharding_options)
                return
            of_one_shard = all(map(_looks_at_one_shard, estimators))
            if of_one_shard:
                in_lanes = all(map(_is_torchrecs, estimators))
                constraints = [each._constraints for each in estimators] if in_lanes else None
                try:
                    Estimation(sharding_options, layouts, super().populate_estimates, constraints)
                except Exception as error:  # torchrec's is raised again below, with all shards
                    failure = f"{type(error).__name__}: {error}"
            if failure or not of_one_shard:
                for option, layout in zip(sharding_options, layouts, strict=True):
                    option.shards = layout.shards()
                super().populate_estimates(sharding_options)
        for option in sharding_options:
            option.__class__ = _KeptOption
        if failure:  # torchrec's own estimators, which take longer, did not fail
            text = f"TorchRec estimates all shards, since ours failed with {failure}"
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    def _get_stash_weights(self, parameter: str, module: nn.Module) -> bool:
        special = self._is_special(parameter, module)
        return special and bool(super()._get_stash_weights(parameter, module))

    def _get_num_buckets(self, parameter: str, module: nn.Module) -> int | None:
        special = self._is_special(parameter, module)
        buckets: int | None = super()._get_num_buckets(parameter, module) if special else None
        return buckets

    def _is_special(self, parameter: str, module: nn.Module) -> bool:
        """Whether a table may have buckets or stashed weights; cached per module.

        TorchRec would search all tables of the module twice for each option.
        """
        if isinstance(module, EmbeddingBagCollection):
            configs = module.embedding_bag_configs
        elif isinstance(module, EmbeddingCollection):
            configs = module.embedding_configs
        else:
            return True
        if id(module) not in self._special:
            self._special[id(module)] = {
                config.name
                for config in configs()
                if getattr(config, "use_virtual_table", True)
                or getattr(config, "stash_weights", False)
            }
        return parameter in self._special[id(module)]


def _enumerate_with_layouts() -> Callable[..., list[ShardingOption]]:
    """Return a copy of torchrec's `enumerate` that gives options a ShardLayout instead of shards.

    If torchrec's function is not of the expected form, return it unchanged.
    """
    torchrecs: Any = EmbeddingEnumerator.enumerate
    code = getattr(torchrecs, "__code__", None)
    if code is None or torchrecs.__closure__ or _CUT not in code.co_names:
        return cast(Callable[..., list[ShardingOption]], torchrecs)
    cut = torchrecs.__globals__[_CUT]
    layouts: dict[Hashable, ShardLayout] = {}

    def lay_out(tensor: torch.Tensor, **how: Any) -> tuple[list[ShardLayout], list[ShardLayout]]:
        rows, columns = tensor.shape
        key = rows, columns, *map(hashable, how.values())
        if key not in layouts:
            runs = _even_rows(rows, columns, how)
            layouts[key] = ShardLayout((rows, columns), partial(cut, tensor, **how), runs)
        return [layouts[key]], [layouts[key]]

    return FunctionType(
        code,
        {**torchrecs.__globals__, _CUT: lay_out, _BY_TYPE: cache(get_partition_by_type)},
        torchrecs.__name__,
        torchrecs.__defaults__,
    )


def _even_rows(rows: int, columns: int, how: dict[str, Any]) -> dict[tuple[int, ...], int] | None:
    """Return the sizes of a row-wise table's shards and the number of each; None if not even."""
    special = how.get("device_memory_sizes") or how.get("num_buckets")
    if how["sharding_type"] != ShardingType.ROW_WISE.value or special or not rows:
        return None
    ranks = how["world_size"]
    block = math.ceil(rows / ranks)
    full = rows // block
    runs = Counter({(block, columns): full})
    if full < ranks:
        runs[rows - full * block, columns] += 1
        runs[0, columns] += ranks - full - 1
    return dict(+runs)


def _unchecked(estimator: ShardEstimator) -> ShardEstimator:
    """Return the estimator inside torchrec's one that checks each shard, which providers use."""
    if type(estimator) is CheckingPerfEstimator:
        return getattr(estimator, "_estimator", estimator)
    return estimator


def _is_perf_estimator(estimator: ShardEstimator) -> bool:
    return (
        type(estimator) is EmbeddingPerfEstimator
        and type(estimator._config).post_process_perfs is HardwarePerfConfig.post_process_perfs
    )


def _looks_at_one_shard(estimator: ShardEstimator) -> bool:
    inner = _unchecked(estimator)
    of_storage = type(inner) is EmbeddingStorageEstimator
    return of_storage or _is_perf_estimator(inner) or hasattr(inner, "looks_at_one_shard")


def _is_torchrecs(estimator: ShardEstimator) -> bool:
    """Whether an estimator has no configuration, or torchrec's own one without annotations.

    If it checks each shard, it cannot estimate many at once.
    """
    if estimator is not _unchecked(estimator):
        return False
    config = getattr(estimator, "_config", None)
    return config is None or not (
        any(kind.__module__.partition(".")[0] != "torchrec" for kind in type(config).__mro__[:-1])
        or any(_annotated(config))
    )


def _remembered_annotations(
    estimators: Iterable[ShardEstimator],
) -> Iterator[tuple[ShardEstimator, str, HardwarePerfConfig]]:
    """Yield replacements of configurations by copies for which `dir` lists annotated methods only.

    TorchRec scans `dir(config)` for annotated methods about 14 times per shard, and most
    configurations have none.
    """
    for estimator in map(_unchecked, estimators):
        if _is_perf_estimator(estimator):
            config, kind = copy.copy(estimator._config), type(estimator._config)
            names = tuple(_annotated(config))
            listing = {"__dir__": lambda self, names=names: names, "__module__": kind.__module__}
            config.__class__ = type(kind.__name__, (kind,), listing)
            yield estimator, "_config", config


def _annotated(config: HardwarePerfConfig) -> Iterable[str]:
    """Yield the names of public methods with attributes, such as torchrec's annotations set."""
    for name in dir(config):
        if not name.startswith("_"):
            attribute = getattr(config, name, None)
            if callable(attribute) and vars(getattr(attribute, "__func__", attribute)):
                yield name
