"""The output of commands where no decision is possible: what is missing, and how much is enough."""

from rich.console import Group, RenderableType
from rich.text import Text

from harness.contract.abilities.remedies import Remedies
from reports.core.formatting import figure
from shardbench.display.explanation import bullets

_TITLE = "Each of these changes is enough alone, the smallest first:"


def shown(found: "Remedies[object, object]", unit: str) -> RenderableType:
    """Render the causes, the remedies with proofs and plans' first qualities, and the findings."""
    lines = [
        f"{' '.join(remedy.changes) or 'Nothing to change: a plan fits.'} "
        f"({remedy.size:+.1%}; {remedy.evidence}; the plan takes {figure(remedy.rating)} {unit})"
        for remedy in found.remedies
    ]
    parts: list[RenderableType] = [Text(_TITLE, style="bold"), bullets(lines)] if lines else []
    return Group(bullets(found.causes), *parts, bullets(found.findings))
