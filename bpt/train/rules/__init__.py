"""The rules of all mechanisms: why a plan cannot run, and which of its settings have no effect."""
