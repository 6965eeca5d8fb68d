"""``bpt convert``: weights from one format to another; and the mean of a data set."""
