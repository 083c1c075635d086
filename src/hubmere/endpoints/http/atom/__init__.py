"""The older management plane: Atom feeds, as the first SDKs use them."""
