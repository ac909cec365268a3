"""The program exiftool, which writes metadata into images of any kind: one process for many images."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from visterm.core.errors import DataError, MissingExtraError, StorageError
from visterm.core.writing import why_refused


class ExifTool:
    """A running exiftool; call `close` when you are done.

    Arguments go to it line by line, not through a shell; its configuration, which is a program, is not loaded. Raises
    MissingExtraError if there is no such program.
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
        """Return the XMP of an image as it is; None where it has none.

        Raises DataError if exiftool cannot take the file's name; StorageError if it cannot read the file.
        """
        packet = self._execute([b"-b", b"-XMP", _argument(image)], image)
        complaint = self._complaint()
        if not packet and "Error:" in complaint:
            raise StorageError(f"exiftool cannot read {image}: {complaint}")
        return packet or None

    def write_packet(self, image: Path, packet: bytes | None, *, keep_original: bool, more: Sequence[str] = ()) -> None:
        """Put XMP into an image in place of what it has (None: take it out); pixels and all else stay.

        `more` are arguments for other fields (``-IPTC:Keywords+=sea``), each of one line. With `keep_original`, the
        image stays as it was beside it (``photo.jpg_original``), unless one is there from before. Raises DataError or
        StorageError as `read_packet` does; the image is then as it was.
        """
        options = [] if keep_original else [b"-overwrite_original"]
        file = Path(self._folder.name, "packet.xmp")
        file.write_bytes(packet or b"")
        source = os.fsencode(file).replace(b"%", b"%%")
        assignment = b"-XMP<=" + source if packet else b"-XMP="
        output = self._execute([*options, assignment, *map(str.encode, more), _argument(image)], image)
        if b"1 image files updated" not in output and b"1 image files unchanged" not in output:
            complaint = f"exiftool did not write {image}: {self._complaint() or 'no reason given'}."
            raise why_refused(image, image.stat().st_size) or StorageError(complaint)

    def close(self) -> None:
        """End the process, and remove what it left."""
        self._end()
        self._complaints.close()
        self._folder.cleanup()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.stdin is not None and process.stdout is not None:
            with suppress(BrokenPipeError):  # it may have ended already
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
        self._complaints.seek(0, os.SEEK_END)  # past what it said of others
        self._number += 1
        end = b"{ready%d}" % self._number
        lines = [*arguments, b"-execute%d" % self._number, b""]

        with suppress(BrokenPipeError):  # where it has ended, what it said of that is read below
            process.stdin.write(b"\n".join(lines))
            process.stdin.flush()
        output = b""
        # Until the line that says the number of the command; lines of Windows end in \r\n
        while not (output.endswith(b"\n") and output[-len(end) - 2 :].rstrip().endswith(end)):
            more = os.read(process.stdout.fileno(), 2**16)
            if not more:
                complaint = self._complaint() or "no reason given"
                self._end()  # the next image gets a new one
                raise StorageError(f"exiftool ended at {image}: {complaint}.")
            output += more
        return output[: output.rindex(end)]

    def _complaint(self) -> str:
        """Return what it said since the last command."""
        text = self._complaints.read(2**12)
        return " ".join(text.decode("utf-8", "replace").split())[:300]


def find_exiftool() -> str:
    """Return the path of the program. Raises MissingExtraError if it is not installed."""
    if (program := shutil.which("exiftool")) is None:
        raise MissingExtraError(
            "Writing into images takes the program exiftool, which is not installed.",
            advice="Install it (Debian: libimage-exiftool-perl; others: https://exiftool.org), or write XMP files "
            "beside the images: `to` xmp.",
        )
    return program


def _argument(image: Path) -> bytes:
    """Return a path as a line of arguments, absolute: exiftool must not take it for an option or a comment."""
    path = os.fsencode(os.path.abspath(image))
    if b"\n" in path or b"\r" in path:
        raise DataError(f"The name of {str(image)!r} has a line end, which exiftool cannot take. Rename the file.")
    return path
