"""Drives one release of Paddle's static-graph Resharder, in a child process on its interpreter.

`harness.contract.Upstream` asks. What is timed is timed here, and counters are taken in a request
of their own, since they slow down what they count.
"""

import os
import sys
import zlib
from pathlib import Path
from types import ModuleType

# Release 3 has another program representation by default, which this Resharder does not edit.
os.environ.update(FLAGS_enable_pir_api="0")

# Paddle brings a zlib of its own, under the same symbols; whoever uses Python's for the first time
# after Paddle is loaded gets a mixture of the two, and crashes.
zlib.decompress(zlib.compress(b""))

# Paddle's environment has nothing of this project, whose modules are found in the checkout. The
# family's own package stays out, since what it declares needs more than Paddle's environment has.
_FAMILY = Path(__file__).resolve().parents[1]
_package = ModuleType("planners.reshard")
_package.__path__ = [str(_FAMILY)]
sys.modules.setdefault("planners.reshard", _package)
sys.path.append(str(_FAMILY.parents[1]))

from planners.reshard.upstream.running import answer  # noqa: E402 - after all that is said above

HANDLERS = {"reshard": answer}
