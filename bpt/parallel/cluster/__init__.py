"""The nodes of a cluster with their links, and what the layers of a net were measured to take on them."""
