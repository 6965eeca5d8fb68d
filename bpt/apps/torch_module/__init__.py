"""A net as a plain module of torch, which ``bpt.load_module`` returns and ``bpt export`` writes."""
