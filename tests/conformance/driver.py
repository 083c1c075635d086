"""Foreign clients in another language: one child process that executes requests of tests, one JSON line each.

A request names an operation of the program, the answer has facts for the test to check, or the client's own error.
The program is started once for many tests, because a virtual machine takes longer to start than a test to run.
"""

import contextlib
import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

# Longer than every limit of the programs, shorter than that of pytest.
_ANSWER_SECONDS = 900.0
_END_SECONDS = 120.0


class ClientError(Exception):
    """The error of the foreign client, with its own text."""

    def __init__(self, name: str, code: str, message: str) -> None:
        super().__init__(name, code, message)
        self.name = name
        self.code = code
        self.message = message


class Driver:
    """The child process for the length of a `with` block. Only one thread may call it."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._command = command
        self._environment = {**os.environ, **environment}
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed with the driver
        self._answers: queue.Queue[bytes] = queue.Queue()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        self._errors.close()

    def call(self, module: str, name: str, **arguments: Any) -> Any:
        """The facts that an operation returns; raises ClientError if the client failed."""
        process = self._started()
        request = {"module": module, "name": name, "arguments": arguments}
        assert process.stdin is not None
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        answer = json.loads(self._answer(f"{module}.{name}"))
        if "error" in answer:
            error = answer["error"]
            raise ClientError(error["name"], str(error["code"]), error["message"])
        return answer["facts"]

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the process for the length of a `with` block, like a laptop that sleeps."""
        process = self._started()
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    def _started(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            self._answers = queue.Queue()
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=self._environment,
            )
            threading.Thread(target=self._read, args=(self._process, self._answers), daemon=True).start()
        return self._process

    @staticmethod
    def _read(process: "subprocess.Popen[bytes]", answers: "queue.Queue[bytes]") -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                answers.put(line)
        answers.put(b"")

    def _answer(self, what: str) -> bytes:
        """The next line of output, or a failure with the program's output; the next test then starts it again."""
        try:
            line = self._answers.get(timeout=_ANSWER_SECONDS)
        except queue.Empty:
            line = b""
        if not line:
            self._end()
            raise AssertionError(f"{what} gave no answer\n{self._complaints()}")
        return line

    def _complaints(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")[-4000:]

    def _end(self) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
