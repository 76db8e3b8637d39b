"""TorchRec's enumerator, asking its estimators once for each distinct shard."""

import copy
from collections.abc import Iterable
from typing import Any

from torch import nn
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.estimator.estimator import EmbeddingPerfEstimator
from torchrec.distributed.planner.estimator.types import HardwarePerfConfig
from torchrec.distributed.planner.shard_estimators import EmbeddingStorageEstimator
from torchrec.distributed.planner.types import Shard, ShardEstimator, ShardingOption
from torchrec.distributed.types import ModuleSharder


def with_shards(
    option: ShardingOption, shards: list[Shard], kind: type[ShardingOption] | None = None
) -> ShardingOption:
    """Return a shallow copy of an option, of its own kind or another one, with these shards."""
    copied = object.__new__(kind or type(option))
    vars(copied).update(vars(option))
    copied.shards = shards
    return copied


class SharedOption(ShardingOption):
    """An option whose copies have shards of their own, and share what no one changes."""

    def __deepcopy__(self, memo: dict[int, Any] | None) -> ShardingOption:
        return with_shards(
            self,
            [
                Shard(each.size, each.offset, each.storage, each.perf, each.rank)
                for each in self.shards
            ],
        )


class _KeptOption(SharedOption):
    """An option that is its own copy, while the enumerator stores the search space."""

    def __deepcopy__(self, memo: dict[int, Any] | None) -> "_KeptOption":
        return self


class DistinctShardEnumerator(EmbeddingEnumerator):
    """Enumerates what torchrec's enumerator does, with equal estimates, in less time.

    A shard's estimates depend on its option and its size alone, and a row-wise table has one or
    two sizes of shard however many ranks there are. Where an estimator is not torchrec's own, or
    looks across the shards of an option, all are asked about every shard.

    The options are also the ones that `last_stored_search_space` keeps: who sets ranks on them
    copies them before.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for estimator in self._estimators:
            if _is_perf_estimator(estimator):
                estimator._config = _with_remembered_annotations(estimator._config)

    def enumerate(
        self, module: nn.Module, sharders: list[ModuleSharder[nn.Module]]
    ) -> list[ShardingOption]:
        """Return torchrec's options in its order, each with equal estimates."""
        options: list[ShardingOption] = super().enumerate(module, sharders)
        for option in options:
            option.__class__ = SharedOption
        return options

    def populate_estimates(self, sharding_options: list[ShardingOption]) -> None:
        """Fill in the estimates of all shards, asking for one shard of each size."""
        if not all(
            _is_perf_estimator(each) or type(each) is EmbeddingStorageEstimator
            for each in self._estimators
        ):  # which look at shards one by one
            super().populate_estimates(sharding_options)
        else:
            samples = [_Sample(option) for option in sharding_options]
            try:
                super().populate_estimates([sample.option for sample in samples])
            except Exception:
                # The text of torchrec's error may list the shards, and so all must be there.
                super().populate_estimates(sharding_options)
                raise
            for sample in samples:
                sample.hand_over()
        for option in sharding_options:
            option.__class__ = _KeptOption


class _Sample:
    """A copy of an option with one shard of each size, to be estimated in its place."""

    def __init__(self, option: ShardingOption) -> None:
        sizes = [tuple(shard.size) for shard in option.shards]
        by_size = {
            size: Shard(shard.size, shard.offset)
            for size, shard in dict(zip(sizes, option.shards, strict=True)).items()
        }
        self._whole = option
        self._shards = [by_size[size] for size in sizes]
        self.option = with_shards(option, list(by_size.values()))

    def hand_over(self) -> None:
        """Give every shard the estimates of the one of its size."""
        for shard, estimated in zip(self._whole.shards, self._shards, strict=True):
            shard.perf = estimated.perf
            shard.storage = estimated.storage
        self._whole.is_weighted = self.option.is_weighted


def _is_perf_estimator(estimator: ShardEstimator) -> bool:
    return (
        type(estimator) is EmbeddingPerfEstimator
        and type(estimator._config).post_process_perfs is HardwarePerfConfig.post_process_perfs
    )


def _with_remembered_annotations(config: HardwarePerfConfig) -> HardwarePerfConfig:
    """Return the configuration with only its annotated methods in `dir`.

    TorchRec looks for annotations by a scan of `dir(config)`, some fourteen times a shard, and
    most configurations have none.
    """
    names = tuple(_annotated(config))
    plain = type(config)
    remembered = copy.copy(config)
    as_it_was = copy.copy(config)
    remembered.__class__ = type(
        plain.__name__,
        (plain,),
        {
            "__dir__": lambda self: names,
            "__module__": plain.__module__,
            # A class made here cannot be found again by its name, but made again.
            "__reduce_ex__": lambda self, protocol: (_with_remembered_annotations, (as_it_was,)),
        },
    )
    return remembered


def _annotated(config: HardwarePerfConfig) -> Iterable[str]:
    """Yield the public methods that carry an attribute, as torchrec's annotations set them."""
    for name in dir(config):
        if not name.startswith("_"):
            attribute = getattr(config, name, None)
            if callable(attribute) and vars(getattr(attribute, "__func__", attribute)):
                yield name
