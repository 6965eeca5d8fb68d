"""The page of results of training runs: ``bpt report``."""
