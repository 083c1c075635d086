"""The doctor: checks that find an operator's problems, and the card that shows them."""
