"""Events as the Explorer reads, filters, exports and publishes them."""
