"""The demo: a node with simulated devices on three protocols, readers, Capture and a pipeline."""
