"""Changes of entities: the actor, the audit log, and how live hubs, partners and Capture follow a change."""
