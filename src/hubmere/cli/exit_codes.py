"""How a command ends: the exit codes that scripts may rely on, and which failure has which."""

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of every `hubmere` command; the documentation prints this table."""

    OK = 0
    FAILED = 1
    USAGE = 2
    FOLDER_IN_USE = 3
    PORT_IN_USE = 4
    DAMAGED = 5


MEANINGS: dict[Exit, str] = {
    Exit.OK: "The command did what it was asked; a node was stopped by SIGTERM or SIGINT and closed its files.",
    Exit.FAILED: "Something failed while the command ran; standard error says what.",
    Exit.USAGE: "A flag, variable or file is wrong; every bad setting is named, and nothing was started.",
    Exit.FOLDER_IN_USE: "Another node works on the data folder; its process id is named.",
    Exit.PORT_IN_USE: "A port cannot be opened: another process has it, or this one may not.",
    Exit.DAMAGED: "`hubmere doctor` found damage that is still there, or a catalog is lost or damaged.",
}


class CommandFailed(Exception):
    """A command cannot do what it was asked: the code to end with and what to say, a line each."""

    def __init__(self, code: Exit, *lines: str) -> None:
        super().__init__(code, *lines)
        self.code = code
        self.lines = lines
