"""Changes of entities: who asks for them, what is audited, and how running hubs, partners and Capture follow."""
