"""The picture of a net: ``bpt draw``."""
