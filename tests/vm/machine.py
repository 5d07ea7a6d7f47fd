"""Boots a virtual machine and runs a test script in it, as NixOS's test driver does.

The script sees one name, `machine`, with `succeed`, `fail`, `execute` and `wait_for_unit`. A command
goes over a serial line to tests/vm/shell.sh in the machine. Knows nothing of what is tested.

Arguments: SCRIPT SECONDS CONSOLE-LOG -- EMULATOR WORDS…
"""

import base64
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time

# What a line holds: the kernel keeps at most 64 KiB that nobody has read yet.
LONGEST = 48 * 1024


class Machine:
    """The four methods of NixOS's `Machine` that a test may use, with the same meaning."""

    def __init__(self, emulator: list[str], limit: float, console: str) -> None:
        self.end = time.monotonic() + limit
        self.buffer = b""
        self.place = tempfile.TemporaryDirectory()
        line = os.path.join(self.place.name, "line")
        words = emulator + ["-serial", f"file:{console}"]
        words += ["-chardev", f"socket,id=line,path={line},server=on,wait=off", "-serial", "chardev:line"]
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL)
        self.socket = socket.socket(socket.AF_UNIX)
        while True:
            try:
                self.socket.connect(line)
                break
            except OSError:
                self.left("the emulator does not open its line")
                time.sleep(0.05)
        while self.read_line("the machine does not come up") != "ready":
            pass

    def left(self, trouble: str) -> float:
        """The seconds that are left for the whole; raises `trouble` when there are none."""
        if self.process.poll() is not None:
            raise RuntimeError(f"{trouble}: the emulator ended with {self.process.returncode}")
        left = self.end - time.monotonic()
        if left <= 0:
            raise RuntimeError(f"{trouble}, and the time is over")
        return left

    def read_line(self, trouble: str) -> str:
        while b"\n" not in self.buffer:
            if select.select([self.socket], [], [], min(self.left(trouble), 5))[0]:
                got = self.socket.recv(65536)
                if not got:
                    raise RuntimeError(f"{trouble}: its line is closed")
                self.buffer += got
        line, self.buffer = self.buffer.split(b"\n", 1)
        return line.decode().strip()

    def execute(self, command: str, check_return: bool = True, check_output: bool = True, timeout: int | None = 900) -> tuple[int, str]:
        """Runs a command as root and returns its exit code and its standard output."""
        seconds = int(min(timeout or 1e6, self.left("there is no time for a command"))) + 1
        encoded = base64.b64encode(f"set -euo pipefail; {command}".encode()).decode()
        if len(encoded) > LONGEST:
            raise RuntimeError(f"a command of {len(command)} characters is too long for the line")
        self.socket.sendall(f"{seconds} {encoded}\n".encode())
        code, _, answer = self.read_line(f"no answer to `{command}`").partition(" ")
        return int(code), base64.b64decode(answer).decode(errors="replace")

    def succeed(self, *commands: str, timeout: int | None = None) -> str:
        """Runs commands that must end with 0, and returns their output."""
        output = ""
        for command in commands:
            code, said = self.execute(command, timeout=timeout)
            if code != 0:
                raise RuntimeError(f"command `{command}` failed (exit code {code}): {said}")
            output += said
        return output

    def fail(self, *commands: str, timeout: int | None = None) -> str:
        """Runs commands that must not end with 0, and returns their output."""
        output = ""
        for command in commands:
            code, said = self.execute(command, timeout=timeout)
            if code == 0:
                raise RuntimeError(f"command `{command}` unexpectedly succeeded: {said}")
            output += said
        return output

    def wait_for_unit(self, unit: str, user: str | None = None, timeout: int = 900) -> None:
        """Waits until a unit is active; raises when it fails."""
        whose = f"--user --machine={user}@.host " if user else ""
        end = time.monotonic() + timeout
        while True:
            _, state = self.execute(f"systemctl {whose}show --property=ActiveState --value {unit} || true")
            if state.strip() == "active":
                return
            if state.strip() == "failed":
                raise RuntimeError(f'unit "{unit}" reached state "failed"')
            if time.monotonic() > end:
                raise RuntimeError(f'unit "{unit}" is `{state.strip()}` after {timeout} s')
            time.sleep(0.5)

    def off(self) -> None:
        """Ends the machine at once; nothing in it is kept."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.socket.close()
        self.place.cleanup()


def main(words: list[str]) -> int:
    script, limit, console, dashes, *emulator = words
    if dashes != "--" or not emulator:
        print(__doc__, file=sys.stderr)
        return 2
    with open(script, encoding="utf-8") as file:
        code = compile(file.read(), script, "exec")
    # The emulator must not outlive this program, whoever ends it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    begin = time.monotonic()
    machine = Machine(emulator, float(limit), console)
    try:
        print(f"the machine is up, {time.monotonic() - begin:.0f} s", flush=True)
        exec(code, {"__name__": "testScript", "machine": machine})  # noqa: S102
    except (AssertionError, RuntimeError) as error:
        print(f"the test ended: {error}", flush=True)
        return 1
    finally:
        machine.off()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
