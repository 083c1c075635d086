"""The older management interface: Atom feeds, which the first SDKs use."""
