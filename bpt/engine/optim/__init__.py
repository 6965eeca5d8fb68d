"""How weights follow from gradients: update rules, learning-rate policies, gradients."""
