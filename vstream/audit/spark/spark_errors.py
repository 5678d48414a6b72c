"""Spark's errors in one line: the error of vstream's own code in it, else the first line of Spark's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from vstream.audit.request import SparkEndedError
from vstream.audit.spark.java import find_gateway
from vstream.errors import VstreamError

OURS: Final = re.compile(r"^(?:\s*)vstream\.errors\.\w+: (?P<text>.+)$", re.MULTILINE)
"""A VstreamError that was raised on an executor, or in Spark's Python process beside the driver."""
_SAID: Final = re.compile(r"\[USER_RAISED_EXCEPTION\] (?P<text>.+?)(?: SQLSTATE:.*)?$", re.MULTILINE)
"""The argument of `raise_error`."""
_STATE: Final = re.compile(r"\s*SQLSTATE: \w+.*", re.DOTALL)
_NO_CLASS: Final = re.compile(r"ClassNotFoundException: (?:Class )?(?P<name>[\w.$]+)")
"""Java's message for a missing package, for example of a file system or a table format."""
_CAUSE: Final = re.compile(r"^(?:: |Caused by: )?(?:[\w.$]+(?:Exception|Error)): (.+)$", re.MULTILINE)
"""Java's message and those of its causes; Py4J puts a colon before the first."""
_NO_FILE: Final = "FAILED_READ_FILE"
"""Spark's error condition for a file that is damaged or has the wrong format."""
_FILE: Final = re.compile(r"while reading file (?P<name>\S+?)\.?(?:\s|$)")
_TABLE_FILE: Final = re.compile(r"/(?P<name>[a-z]+)/[^/\s]+\.parquet\b")
"""A table is a directory."""
_MADE_BY: Final = {"copies": "normalise"} | dict.fromkeys(
    ("buckets", "out_of_order", "suspects", "differences"), "reconcile"
)
"""The stage that creates a stored table. Tables that are not listed come from the extraction."""
_MAX_CHARACTERS: Final = 400


@contextmanager
def convert_spark_errors() -> Iterator[None]:
    """Convert errors of Spark inside the block to a VstreamError of one line, without Spark's stack."""
    try:
        yield
    except Py4JNetworkError as error:
        if not _is_java_running():
            raise SparkEndedError(
                "Spark's Java process has ended", hint="did it run out of memory? `--master` names a cluster"
            ) from error
        raise VstreamError(f"the connection to Spark's Java process broke: {find_cause_line(str(error))}") from error
    except (PySparkException, Py4JError) as error:
        hint = _damage_hint(str(error)) if is_damaged_file(error) else None
        raise VstreamError(f"Spark failed: {find_cause_line(str(error))}", hint=hint) from error


def _is_java_running() -> bool:
    process = getattr(find_gateway(), "proc", None)
    return process is not None and process.poll() is None


def is_damaged_file(error: Exception) -> bool:
    """Whether Spark failed because of a damaged file."""
    return _NO_FILE in str(error)


def is_read_error(error: VstreamError) -> bool:
    """Whether our code that reads servers failed, and not Spark itself, for example because of a full disk."""
    cause = error.__cause__
    return not isinstance(cause, PySparkException | Py4JError) or OURS.search(str(cause)) is not None


def suggest_rebuild(table: str) -> str:
    """A hint how to create the stored *table* again."""
    stage = _MADE_BY.get(table)
    return f"`--from {stage}` creates it again" if stage else "extract the tables again"


def _damage_hint(text: str) -> str:
    matches = _TABLE_FILE.findall(text)
    return (
        f"a file of the table `{matches[-1]}` is damaged: {suggest_rebuild(matches[-1])}"
        if matches
        else "a file is damaged"
    )


def find_cause_line(text: str) -> str:
    """The line of Spark's error *text* that names the cause."""
    for pattern in (OURS, _SAID):
        matches = pattern.findall(text)
        if matches:
            return str(matches[-1]).strip()
    if missing := _NO_CLASS.search(text):
        return f"this Spark has no `{missing['name']}`: a package is missing or has another version"
    causes = _CAUSE.findall(text)
    line = causes[-1] if causes else next((item for item in text.splitlines() if item.strip()), "it does not say why")
    line = _STATE.sub("", line).strip()
    # Of a column that is of another type, only Spark's first words name the file.
    if (file := _FILE.search(text)) and file["name"].rpartition("/")[2] not in line:
        line = f"{file['name']}: {line}"
    return line if len(line) <= _MAX_CHARACTERS else f"{line[:_MAX_CHARACTERS]}…"
