"""The root of all refusals."""


class Refusal(Exception):
    """A request breaks a rule or cannot be served; nothing was changed."""

    def __str__(self) -> str:
        """The text that a client may see: never a secret."""
        return self.text()

    def text(self) -> str:
        """What is wrong and what is allowed."""
        return "The request was refused."
