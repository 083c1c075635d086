"""What an operator sees and does in a browser."""
