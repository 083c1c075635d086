"""Commands on resources of the management API, declared as tables of verbs."""
