"""``bpt convert``: convert weights from one format to another, and compute the mean of a data set."""
