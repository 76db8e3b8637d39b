"""Profile the calls of variants, and compare two profiles."""
