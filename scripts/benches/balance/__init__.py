"""``scripts/bench balance``: the experiments of the StaticLB paper."""
