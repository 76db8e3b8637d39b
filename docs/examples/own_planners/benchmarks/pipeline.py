"""asv benchmarks of the family `pipeline`: its cost, its decision and its Python calls."""

import json
import subprocess

PROBLEM = "uneven[layers=40,seed=1]/dgx_a100_80gb:8"
VARIANTS = ("exact", "bisected")


class Pipeline:
    """Measures all variants once a commit, with `shardbench compare`.

    Counts and decisions repeat exactly. The ratio is measured in one run, so it does not depend on
    the speed of the machine; its noise does.
    """

    params = VARIANTS
    param_names = ("variant",)
    timeout = 600

    def setup_cache(self) -> dict[str, dict]:
        """Return the cell of each variant, from one comparison."""
        names = ",".join(VARIANTS)
        compared = subprocess.run(
            ["shardbench", "compare", f"pipeline@{PROBLEM}", "--variants", names, "--json"],
            check=True,  # a variant that fails makes the benchmark fail, and never n/a
            stdout=subprocess.PIPE,
        )
        return {cell["variant"]: cell for cell in json.loads(compared.stdout)["rows"]}

    def track_ratio(self, cells: dict[str, dict], variant: str) -> float:
        """Return the CPU time over that of the reference."""
        ratio = cells[variant]["ratio"]
        return ratio["value"] if ratio else 1.0  # the reference itself has none

    def track_python_calls(self, cells: dict[str, dict], variant: str) -> int:
        """Return the number of Python calls in one call of the planner."""
        return cells[variant]["work"]["python_calls"]

    def track_different_decision(self, cells: dict[str, dict], variant: str) -> int:
        """Return 1 if the variant does not decide as it must."""
        return int(cells[variant]["decision"] == "different")
