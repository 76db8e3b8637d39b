"""Run one release of Paddle's static-graph Resharder, in a child process with its own packages.

`harness.contract.Upstream` sends the requests. This process takes the times. Counters need a
separate request, because counting slows the calls.
"""

import os
import sys
import zlib
from pathlib import Path
from types import ModuleType

# Paddle 3 uses another program representation by default, which this Resharder cannot edit.
os.environ.update(FLAGS_enable_pir_api="0")

# Paddle has its own zlib with the same symbols. If Python's zlib is first used after Paddle is
# loaded, the two mix and the process crashes, so use Python's zlib before.
zlib.decompress(zlib.compress(b""))

# Paddle's environment lacks this project, so import its modules from the checkout. An empty package
# replaces planners.reshard, whose __init__ imports packages that Paddle's environment lacks.
_FAMILY = Path(__file__).resolve().parents[1]
_package = ModuleType("planners.reshard")
_package.__path__ = [str(_FAMILY)]
sys.modules.setdefault("planners.reshard", _package)
sys.path.append(str(_FAMILY.parents[1]))

from planners.reshard.upstream.running import answer  # noqa: E402 - after the lines above

HANDLERS = {"reshard": answer}
