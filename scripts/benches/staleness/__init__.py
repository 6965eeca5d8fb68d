"""``scripts/bench staleness`` (bench.py): accuracy of asynchronous training against the spread of the nodes' speeds."""
