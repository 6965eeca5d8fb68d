"""Run a trained net on pictures: find the pictures that a user names, prepare them, and put them into the net."""
