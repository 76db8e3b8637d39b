"""`shardbench doctor`: what works on this machine."""


def doctor() -> None:
    """Say what is installed here, and what this machine resolves."""
