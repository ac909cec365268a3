"""Writing metadata into images of any kind with the program exiftool: one process for many images."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from visterm.core.errors import DataError, MissingExtraError, StorageError
from visterm.core.writing import find_write_error


class ExifTool:
    """A running exiftool; call `close` when you are done.

    Arguments are passed line by line, not through a shell; its configuration file, which can run code, is not loaded.
    Raises MissingExtraError if exiftool is not installed.
    """

    def __init__(self) -> None:
        self._program = find_exiftool()
        self._folder = tempfile.TemporaryDirectory(prefix="visterm-")
        self._errors = Path(self._folder.name, "errors")
        self._errors.touch()
        self._complaints = self._errors.open("rb")
        self._process: subprocess.Popen[bytes] | None = None
        self._number = 0

    def read_packet(self, image: Path) -> bytes | None:
        """Return the XMP of an image unchanged; None if it has none.

        Raises DataError if exiftool cannot handle the file's name; StorageError if it cannot read the file.
        """
        packet = self._execute([b"-b", b"-XMP", _argument(image)], image)
        complaint = self._complaint()
        if not packet and "Error:" in complaint:
            raise StorageError(f"exiftool cannot read {image}: {complaint}")
        return packet or None

    def write_packet(self, image: Path, packet: bytes | None, *, keep_original: bool, more: Sequence[str] = ()) -> None:
        """Replace the XMP of an image (None: remove it); pixels and all other data stay the same.

        `more` are arguments for other fields (``-IPTC:Keywords+=sea``), without line ends. With `keep_original`, a copy
        of the original is kept in the same folder (``photo.jpg_original``), unless it exists already. Raises DataError
        or StorageError as `read_packet` does; the image is then unchanged.
        """
        options = [] if keep_original else [b"-overwrite_original"]
        file = Path(self._folder.name, "packet.xmp")
        file.write_bytes(packet or b"")
        source = os.fsencode(file).replace(b"%", b"%%")
        assignment = b"-XMP<=" + source if packet else b"-XMP="
        output = self._execute([*options, assignment, *map(str.encode, more), _argument(image)], image)
        if b"1 image files updated" not in output and b"1 image files unchanged" not in output:
            complaint = f"exiftool did not write {image}: {self._complaint() or 'no reason given'}."
            raise find_write_error(image, image.stat().st_size) or StorageError(complaint)

    def close(self) -> None:
        """End the process, and remove its temporary files."""
        self._end()
        self._complaints.close()
        self._folder.cleanup()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.stdin is not None and process.stdout is not None:
            with suppress(BrokenPipeError):  # the process may have ended already
                process.stdin.write(b"-stay_open\nFalse\n")
                process.stdin.close()
            process.wait()
            process.stdout.close()

    def _execute(self, arguments: list[bytes], image: Path) -> bytes:
        if self._process is None:
            command = [self._program, "-config", "", "-stay_open", "True", "-@", "-"]
            command += ["-common_args", "-charset", "utf8", "-charset", "filename=utf8"]
            with self._errors.open("ab") as errors:
                self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        self._complaints.seek(0, os.SEEK_END)  # skip messages about other images
        self._number += 1
        ready_line = b"{ready%d}" % self._number
        lines = [*arguments, b"-execute%d" % self._number, b""]

        with suppress(BrokenPipeError):  # if the process has ended, its error message is read below
            process.stdin.write(b"\n".join(lines))
            process.stdin.flush()
        output = b""
        # Read until the line with the number of the command; on Windows, lines end in \r\n
        while not (output.endswith(b"\n") and output[-len(ready_line) - 2 :].rstrip().endswith(ready_line)):
            chunk = os.read(process.stdout.fileno(), 2**16)
            if not chunk:
                complaint = self._complaint() or "no reason given"
                self._end()  # the next image starts a new process
                raise StorageError(f"exiftool ended at {image}: {complaint}.")
            output += chunk
        return output[: output.rindex(ready_line)]

    def _complaint(self) -> str:
        """Return the error messages since the last command."""
        return " ".join(self._complaints.read(2**12).decode("utf-8", "replace").split())[:300]


def find_exiftool() -> str:
    """Return the path of exiftool. Raises MissingExtraError if it is not installed."""
    if (program := shutil.which("exiftool")) is None:
        raise MissingExtraError(
            "Writing into images needs the program exiftool, which is not installed.",
            advice="Install it (Debian: libimage-exiftool-perl; others: https://exiftool.org), or write XMP files "
            "next to the images: `to` xmp.",
        )
    return program


def _argument(image: Path) -> bytes:
    """Return an absolute path as a line of arguments; exiftool could take a relative path for an option or comment."""
    path = os.fsencode(os.path.abspath(image))
    if b"\n" in path or b"\r" in path:
        raise DataError(f"The name of {str(image)!r} has a line break, which exiftool cannot handle. Rename the file.")
    return path
