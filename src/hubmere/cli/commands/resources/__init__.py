"""Commands on entities, with the names and options of `az eventhubs`."""
