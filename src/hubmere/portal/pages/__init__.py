"""The pages of the portal, one file each; `routes` says how one is found."""
