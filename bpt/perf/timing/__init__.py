"""The timing of layers and iterations: ``bpt time``."""
