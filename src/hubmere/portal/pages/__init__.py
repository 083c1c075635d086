"""The pages of the portal, one module each. `routes.page` registers a page."""
