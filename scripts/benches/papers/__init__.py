"""``scripts/bench papers``: every command of docs/papers.md."""
