"""The device that a record is measured on, and its machine's folder."""

import re
from dataclasses import dataclass

from harness.execution.child import run
from harness.execution.worker import Failed, Report, Stage
from harness.measuring.environment import environment
from harness.model.errors import UsageError
from harness.topologies.probe import used_gpu

_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class RecordedDevice:
    """A device, `cpu` or `cuda`, and the name of the GPU; the name is empty on a CPU."""

    kind: str
    gpu: str = ""

    @classmethod
    def find(cls, kind: str) -> "RecordedDevice":
        """Return this machine's device of a kind; raises UsageError if there is none."""
        if kind == "cpu":
            return cls(kind)
        if kind != "cuda":
            raise UsageError(f"--device must be cpu or cuda, not '{kind}'.")
        found = run(_used_gpu, first=Stage("Asking torch for its GPU", _SECONDS))
        if isinstance(found, Failed):
            raise UsageError(f"--device cuda needs a GPU: {found.reason.rstrip('.')}.")
        return cls(kind, found)

    @property
    def folder(self) -> str:
        """The name of the folder with this machine's results."""
        name = re.sub(r"[^a-z0-9]+", "-", self.gpu.lower()).strip("-")
        return f"{name or 'cpu'}-{environment(0).machine}"


def _used_gpu(_: Report) -> str:
    return used_gpu()
