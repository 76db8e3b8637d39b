"""The suites of upstream's tests, and the drop-ins to run them with."""

from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path


@dataclass(frozen=True)
class PeerSuite:
    """A suite: some of an upstream library's tests.

    Attributes:
        name: the name of the checkout in the table.
        library: the tested package.
        paths: files and folders with tests, in the checkout.
        recent: paths that only recent checkouts have.
        drop_ins: the arguments of `put_in_place`, by their names in the table.
        other_plans: the ends of names of tests that demand the plan of one proposer, by the drop-in
            that makes a better plan.
        from_checkout: whether the library can be imported from the checkout's own sources.
    """

    name: str
    library: str
    paths: tuple[str, ...]
    drop_ins: dict[str, str]
    from_checkout: bool = True
    recent: tuple[str, ...] = ()
    other_plans: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def paths_in(self, checkout: Path) -> list[Path]:
        """Return the paths of the tests in a checkout."""
        recent = (checkout / path for path in self.recent)
        return [*(checkout / path for path in self.paths), *filter(Path.exists, recent)]

    def missing(self, checkout: Path) -> str | None:
        """Return the first path that a checkout lacks."""
        return next((path for path in self.paths if not (checkout / path).exists()), None)

    def release(self, checkout: Path | None) -> str:
        """Return the release of the checkout's sources, or else of the installed library."""
        if checkout is None:
            return f"{metadata.version(self.library)}, installed"
        version = checkout / "version.txt"
        return version.read_text(encoding="utf-8").strip() if version.is_file() else "unknown"


SUITES = (
    PeerSuite(
        name="TorchRec",
        library="torchrec",
        paths=(
            "torchrec/distributed/planner/tests",
            "torchrec/distributed/planner/estimator/tests",
            "torchrec/schema/api_tests/test_planner_schema.py",
        ),
        recent=("torchrec/distributed/planner/dry_run/tests",),
        drop_ins={
            "Planner, same-plan": "same-plan",
            "Planner, best-plan": "best-plan",
            "Planner, same-plan, cache": "same-plan+cache",
        },
        # They demand `fused_uvm_caching`, which EmbeddingOffloadScaleupProposer alone proposes.
        other_plans={
            "Planner, best-plan": (
                "TestAutoPlannerWithScaleupProposer::test_auto_sharder_solution",
                "TestAutoPlannerWithScaleupProposer::test_planner_with_virtual_table",
            )
        },
    ),
    PeerSuite(
        name="ColossalAI",
        library="colossalai",
        paths=(
            "tests/test_tensor/test_shape_consistency.py",
            "tests/test_tensor/test_sharding_spec.py",
            "tests/test_tensor/test_dtensor/test_dtensor_sharding_spec.py",
        ),
        drop_ins={"accelerate()": "colossalai"},
    ),
    PeerSuite(
        name="PyTorch",
        library="torch",
        paths=("test/distributed/tensor",),
        drop_ins={"accelerate()": "dtensor"},
        from_checkout=False,
    ),
)
