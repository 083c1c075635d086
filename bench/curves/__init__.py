"""The curves of `bench.growth`: each module measures how one cost of a node grows."""
