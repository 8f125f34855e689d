"""How fast the product is, as ratios of things that ran side by side on one machine."""
