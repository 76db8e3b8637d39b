"""The output of commands where no decision is possible: missing amounts, and sufficient changes."""

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from harness.contract.abilities.remedies import Remedies
from shardbench.display.explanation import bullets

_TITLE = "Each of these changes is enough alone, the smallest first:"


def document(reason: Exception, found: "Remedies[object, object]") -> dict[str, Any]:
    """Return the reason for having no decision, and the remedies, as a JSON document."""
    names = ("name", "unit", "now", "sufficient", "proven", "gap", "changes", "rating")
    return {
        "plan": None,
        "reason": str(reason),
        "causes": list(found.causes),
        "remedies": [{name: getattr(each, name) for name in names} for each in found.remedies],
        "findings": list(found.findings),
    }


def shown(found: "Remedies[object, object]", unit: str) -> RenderableType:
    """Render the causes, the remedies with proofs and plans' first qualities, and the findings."""
    lines = [remedy.sentence(unit) for remedy in found.remedies]
    parts: list[RenderableType] = [Text(_TITLE, style="bold"), bullets(lines)] if lines else []
    return Group(bullets(found.causes), *parts, bullets(found.findings))
