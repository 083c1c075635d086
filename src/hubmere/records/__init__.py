"""The record batch: what its bytes mean, without knowing who sent or stored them."""
