"""The output of commands where no decision is possible: missing amounts, and sufficient changes."""

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from harness.contract.abilities.remedies import Remedies
from shardbench.display.explanation import bullets, listed

_TITLE = "Each of these changes is enough alone; `shardbench plan --fix N` plans with change N:"


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
    changes = enumerate((remedy.sentence(unit) for remedy in found.remedies), start=1)
    parts = [bullets(found.causes)] * bool(found.causes)
    if found.remedies:
        parts += [Text(_TITLE, style="bold"), listed((f"{n}.", line) for n, line in changes)]
    return Group(*parts, *[bullets(found.findings)] * bool(found.findings))
