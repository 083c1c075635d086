"""A fleet that does not exist: a node with devices on three protocols, readers and Capture; something to look at."""
