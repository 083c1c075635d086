"""Who uses the portal: logins, the sign-in page, identity providers, and what a person may do."""
