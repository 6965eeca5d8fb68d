"""A net as a plain module of torch: what ``bpt.load_module`` returns and ``bpt export`` writes."""
