"""The simulation of an outer-layer run: ``bpt simulate``."""
