"""``bpt classify``: what a trained net says of pictures, which are prepared as those that it was trained with."""
