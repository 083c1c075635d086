"""What a node reports about itself: histograms, history, damage, and the pulse of a gateway."""
