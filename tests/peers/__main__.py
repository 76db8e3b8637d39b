"""Runs upstream's own tests without and with the drop-ins; fails if a drop-in breaks a test.

usage: python -m tests.peers --torchrec CHECKOUT --colossalai CHECKOUT --pytorch CHECKOUT
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.peers.running import Outcomes, PeersError, Runner
from tests.peers.suites import SUITES, PeerSuite

_HEAD = (
    *("suite", "release", "drop-in", "run", "skipped"),
    *("pass at baseline", "pass with ours", "regressions", "reach ours"),
)


@dataclass(frozen=True)
class SuiteComparison:
    """The outcomes of a suite without a drop-in (`baseline`) and with one (`ours`)."""

    suite: str
    release: str
    drop_in: str
    baseline: Outcomes
    ours: Outcomes
    other_plans: tuple[str, ...] = ()

    def regressions(self) -> list[str]:
        """Return the tests that pass without the drop-in and do not pass with it.

        Tests that demand the plan of one proposer are left out, if the drop-in makes a better one.
        """
        lost = self.baseline.of("passed") - self.ours.of("passed")
        return sorted(test for test in lost if not test.endswith(self.other_plans))

    def problems(self) -> list[str]:
        """Return a sentence for each reason why the comparison fails; [] if it succeeds."""
        name = f"{self.suite}, {self.drop_in}"
        found = [f"{name}: {test}: {self._error(test)}" for test in self.regressions()]
        if not self.baseline.of("passed"):
            found.append(f"{name}: no test passes at baseline, so that nothing was compared.")
        if not self.ours.reached:
            found.append(f"{name}: no test has reached the drop-in, so that nothing was compared.")
        return found

    def cells(self) -> list[str]:
        """Return the comparison's row in the table."""
        passed, failed = self.baseline.of("passed"), self.baseline.of("failed")
        counts = (
            len(passed | failed),
            len(self.baseline.of("skipped")),
            len(passed),
            len(self.ours.of("passed")),
            len(self.regressions()),
            len(self.ours.reached),
        )
        return [self.suite, self.release, self.drop_in, *map(str, counts)]

    def _error(self, test: str) -> str:
        missing = self.ours.outcomes.get(test, "not collected")
        return self.ours.errors.get(test, missing)


def table(comparisons: list[SuiteComparison]) -> str:
    """Return a Markdown table, a row for each comparison."""
    rows = [list(_HEAD), ["---"] * 3 + ["---:"] * 6, *(each.cells() for each in comparisons)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def compare(runner: Runner, suite: PeerSuite, checkout: Path) -> list[SuiteComparison]:
    """Run a suite without a drop-in, then with each of its drop-ins."""
    sources = suite.from_checkout and not runner.installed
    release = suite.release(checkout if sources else None)
    _say(f"{suite.name} {release}, as it is")
    baseline = runner.run(suite, checkout, None)
    found = []
    for name, drop_in in suite.drop_ins.items():
        _say(f"{suite.name} {release}, {name}")
        ours = runner.run(suite, checkout, drop_in)
        other_plans = suite.other_plans.get(name, ())
        found.append(SuiteComparison(suite.name, release, name, baseline, ours, other_plans))
    return found


def main() -> int:
    """Return the exit code: 0 without regressions, 1 with regressions, 2 if no suite could run."""
    parser = argparse.ArgumentParser(prog="python -m tests.peers")
    for suite in SUITES:
        parser.add_argument(f"--{suite.name.lower()}", metavar="CHECKOUT", default="")
    parser.add_argument("--installed", action="store_true", help="test the installed libraries")
    parser.add_argument("--limit", type=float, default=300, help="seconds for a test")
    parser.add_argument("--logs", type=Path, default=Path("build/peers"))
    parser.add_argument("pytest_args", nargs="*", help="passed on to pytest; put -- before them")
    arguments = parser.parse_args()
    checkouts = [
        (suite, Path(path).absolute())
        for suite in SUITES
        if (path := getattr(arguments, suite.name.lower()))
    ]
    if not checkouts:
        return _refuse("Name at least one checkout, as in `make peers TORCHREC=../torchrec`.")
    for suite, checkout in checkouts:
        if missing := suite.missing(checkout):
            return _refuse(f"{checkout} is no checkout of {suite.name}: it has no {missing}.")
    arguments.logs.mkdir(parents=True, exist_ok=True)
    runner = Runner(
        arguments.installed, arguments.limit, arguments.pytest_args, arguments.logs.absolute()
    )
    comparisons = []
    try:
        for suite, checkout in checkouts:
            comparisons += compare(runner, suite, checkout)
    except PeersError as error:
        return _refuse(str(error))
    print(table(comparisons))
    for each in {each.suite: each for each in comparisons}.values():
        for file, error in each.baseline.uncollected.items():
            print(f"{each.suite}: {file} cannot be collected: {error}")
    problems = [problem for each in comparisons for problem in each.problems()]
    print("\n".join(problems or ["No regressions."]))
    return 1 if problems else 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _refuse(sentence: str) -> int:
    _say(sentence)
    return 2


if __name__ == "__main__":
    sys.exit(main())
