"""A calibration: the fitted coefficients of a machine, and what they say a shard takes."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.contract import UsageError
from planners.embedding.calibration.indices import Indices, Uniform, Zipf, indices_named
from planners.embedding.calibration.shards import ShardWork
from planners.embedding.calibration.terms import (
    CACHED,
    LAUNCH,
    PASSES,
    START,
    TORCHREC,
    Caches,
    Floats,
    Form,
    cached_terms,
    kernels_of,
    torchrec_terms,
)

DEVICE_BW = "device_bw"
REFERENCE_MS = "reference_ms"
BACKWARD = "bwd_compute_multiplier"
WEIGHTED_BACKWARD = "weighted_feature_bwd_compute_multiplier"
OF_TOPOLOGY = (DEVICE_BW, BACKWARD, WEIGHTED_BACKWARD)
"""What TorchRec's `Topology` lets one set of compute: bytes per millisecond, and two factors."""

_NAME = re.compile(r"[a-z_]+(\.[a-z_]+)*")


@dataclass(frozen=True, slots=True)
class Calibration:
    """Coefficients by name; those of a form are milliseconds per unit of its terms.

    They are written into a topology file as `name=value` with ';' between, and are called
    `KERNEL.FORM.PASS.TERM`.
    """

    values: Mapping[str, float]

    @classmethod
    def parse(cls, text: str) -> "Calibration | None":
        """Read the column `coefficients`, None where it is empty; raises UsageError."""
        values: dict[str, float] = {}
        for item in filter(None, (part.strip() for part in text.split(";"))):
            name, _, value = item.partition("=")
            try:
                number = float(value)
            except ValueError:
                number = math.nan
            if not _NAME.fullmatch(name) or not (math.isfinite(number) and number >= 0):
                raise UsageError(
                    f"The coefficients of a topology must be name=number with ';' between, as "
                    f"`shardbench calibrate` writes them, not '{item[:60]}'."
                )
            values[name] = number
        if not values:
            return None
        for name in OF_TOPOLOGY:
            if values.get(name) == 0:
                raise UsageError(f"The coefficient '{name}' of a topology must be above 0.")
        return cls(values)

    def __str__(self) -> str:
        return ";".join(f"{name}={value:.6g}" for name, value in self.values.items())

    @property
    def indices(self) -> Indices:
        """The distribution that it was fitted with."""
        exponent = self.values.get("indices.zipf")
        if exponent:
            return Zipf(exponent)
        return indices_named("reuse") if self.values.get("indices.reuse") else Uniform()

    @property
    def caches(self) -> Caches:
        """The sizes of the caches, in bytes."""
        return Caches(self.values.get("cache.near", 0.0), self.values.get("cache.far", 0.0))

    def covers(self, kernel: str, form: Form = CACHED) -> bool:
        """Whether it has coefficients of a kernel by this form."""
        return f"{kernel}.{form.name}.{PASSES[0]}.{form.terms[0]}" in self.values

    def shard_ms(self, shard: ShardWork, passed: str, form: Form = CACHED) -> float:
        """Return the milliseconds of a shard in one pass, without the start of its kernel."""
        if not self.covers(shard.kernel, form):
            raise UsageError(
                f"The topology's coefficients are of other kernels than '{shard.kernel}', which "
                f"was not calibrated."
            )
        if form is TORCHREC:
            terms = torchrec_terms(shard)
        else:
            terms = cached_terms(shard, self.caches, self.indices)
        milliseconds = float(terms @ self._of(shard.kernel, form, passed))
        if form is TORCHREC and shard.is_weighted and passed == PASSES[1]:
            milliseconds *= self.values.get(WEIGHTED_BACKWARD, 1.0)
        return milliseconds

    def rank_ms(self, shards: Sequence[ShardWork], form: Form = CACHED) -> float:
        """Return the milliseconds that a rank computes, with the start of its kernels."""
        total = sum(self.shard_ms(shard, each, form) for shard in shards for each in PASSES)
        if form is CACHED and shards:
            for passed in PASSES:
                prefix = f"{shards[0].kernel}.{CACHED.name}.{passed}"
                total += kernels_of(shards) * self.values.get(f"{prefix}.{LAUNCH}", 0.0)
                total += self.values.get(f"{prefix}.{START}", 0.0)
        return total

    def _of(self, kernel: str, form: Form, passed: str) -> Floats:
        prefix = f"{kernel}.{form.name}.{passed}"
        return np.array([self.values.get(f"{prefix}.{term}", 0.0) for term in form.terms])
