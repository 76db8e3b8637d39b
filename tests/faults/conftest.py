"""Made-up results are those of the tests of reports."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "reports"))
