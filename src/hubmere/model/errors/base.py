"""The root of all refusals, and the sentence by which a refusal names the setting that lifts its limit."""


class Refusal(Exception):
    """A request breaks a rule or cannot be served; nothing was changed."""

    def __str__(self) -> str:
        """The text that a client may see: never a secret."""
        return self.text()

    def text(self) -> str:
        """What is wrong and what is allowed."""
        return "The request was refused."


# The sentence for a limit that no setting changes.
FIXED_LIMIT = "This limit is fixed."


def lifting_hint(*limits: str) -> str:
    """How to lift a limit of the tier, by fields of `Limits`: the part of a text that is ours and not the service's."""
    names = " and ".join(f"limits.{limit}" for limit in limits)
    change = f"the setting {names} changes" if len(limits) == 1 else f"the settings {names} change"
    return f"On this node, {change} it, and --as unlimited lifts all limits."


def setting_hint(setting: str) -> str:
    """How to lift a limit that a setting of the node sets by itself."""
    return f"On this node, the setting {setting} changes it."
