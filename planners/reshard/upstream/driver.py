"""Drive one release of Paddle's static-graph Resharder, in a child process on its interpreter.

`harness.contract.Upstream` sends the requests. Times are taken here, and counters in a request of
their own, since counting slows the calls.
"""

import os
import sys
import zlib
from pathlib import Path
from types import ModuleType

# Release 3 has another program representation by default, which this Resharder does not edit.
os.environ.update(FLAGS_enable_pir_api="0")

# Paddle has its own zlib with the same symbols. Python's zlib, first used after Paddle is loaded,
# mixes the two and crashes, so it is used before.
zlib.decompress(zlib.compress(b""))

# Paddle's environment lacks this project, so its modules come from the checkout. An empty package
# stands in for the family's, which imports more than Paddle's environment has.
_FAMILY = Path(__file__).resolve().parents[1]
_package = ModuleType("planners.reshard")
_package.__path__ = [str(_FAMILY)]
sys.modules.setdefault("planners.reshard", _package)
sys.path.append(str(_FAMILY.parents[1]))

from planners.reshard.upstream.running import answer  # noqa: E402 - after the lines above

HANDLERS = {"reshard": answer}
