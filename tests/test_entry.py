"""The short way into `hubmere up` reads flags exactly as the command line does, and leaves the rest to it."""

import pytest

from hubmere.cli.entry import plain_flags


@pytest.mark.parametrize(
    ("arguments", "flags"),
    [
        ([], {}),
        (["--amqp-port", "0", "--data=here"], {"amqp_port": "0", "data": "here"}),
        (["--hostname", "a.example", "--hostname=b.example"], {"hostname": ["a.example", "b.example"]}),
        (["--memory", "--no-auto-create-hubs"], {"memory": True, "auto_create_hubs": False}),
        (["--as", "basic", "--config", "hubmere.toml"], {"as": "basic", "--config": "hubmere.toml"}),
        (["--data="], {"data": ""}),
    ],
)
def test_known_flags_are_read(arguments: list[str], flags: dict[str, object]) -> None:
    """Values stay text; settings read them as they read every other source."""
    assert plain_flags(arguments) == flags


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--nonsense"], ["--data"], ["--data", "--memory"], ["here"], ["--memory=yes"], ["-h"], ["--no-data"]],
)
def test_everything_else_is_the_command_line_s(arguments: list[str]) -> None:
    """Help and mistakes get its answers."""
    assert plain_flags(arguments) is None
