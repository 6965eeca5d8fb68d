"""``bpt classify``: classify pictures by a trained net, prepared in the same way as the pictures of its training."""
