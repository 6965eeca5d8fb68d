"""Reading and drawing of logs: ``bpt plot``."""
