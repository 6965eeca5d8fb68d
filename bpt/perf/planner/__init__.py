"""The planner: ``bpt plan``."""
