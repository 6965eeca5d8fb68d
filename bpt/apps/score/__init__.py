"""The scoring of a network: ``bpt test``."""
