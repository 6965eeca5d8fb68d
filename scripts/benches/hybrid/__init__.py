"""``scripts/bench hybrid`` (bench.py): pipelines on unlike hosts, where ``bpt plan`` has placed the layers."""
