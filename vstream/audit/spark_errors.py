"""Spark's errors in one line: what of vstream's own code has failed in it, else Spark's first words."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from vstream.audit.java_gateway import find_gateway
from vstream.audit.request import SparkEndedError
from vstream.errors import VstreamError

if TYPE_CHECKING:
    from collections.abc import Iterator

OURS: Final = re.compile(r"^(?:\s*)vstream\.errors\.\w+: (?P<text>.+)$", re.MULTILINE)
"""A VstreamError that was raised on an executor, or in Spark's Python process beside the driver."""
_SAID: Final = re.compile(r"\[USER_RAISED_EXCEPTION\] (?P<text>.+?)(?: SQLSTATE:.*)?$", re.MULTILINE)
"""What `raise_error` was given."""
_STATE: Final = re.compile(r"\s*SQLSTATE: \w+.*", re.DOTALL)
_NO_CLASS: Final = re.compile(r"ClassNotFoundException: (?:Class )?(?P<name>[\w.$]+)")
"""What Java says where a package is missing: of a file system, of a table format."""
_CAUSE: Final = re.compile(r"^(?:: |Caused by: )?(?:[\w.$]+(?:Exception|Error)): (.+)$", re.MULTILINE)
"""What Java says, its first words and what caused them; Py4J puts a colon before the first."""
_NO_FILE: Final = "FAILED_READ_FILE"
"""Spark's condition for a file that is damaged, or not what its name says."""
_FILE: Final = re.compile(r"while reading file (?P<name>\S+?)\.?(?:\s|$)")
_OF_TABLE: Final = re.compile(r"/(?P<name>[a-z]+)/[^/\s]+\.parquet\b")
"""A table is a directory."""
_MADE_BY: Final = {"copies": "normalise"} | dict.fromkeys(
    ("tracks", "buckets", "backsteps", "suspects", "faults"), "reconcile"
)
"""Of tables that an earlier audit kept, and that are read again, the stage. The others come with the extraction."""
_LONGEST: Final = 400


@contextmanager
def explain_spark_errors() -> Iterator[None]:
    """Raise what fails in Spark inside the block as a VstreamError of one line, without Spark's stack."""
    try:
        yield
    except Py4JNetworkError as error:
        if not _is_java_running():
            raise SparkEndedError(
                "Spark's Java process has ended", hint="did it run out of memory? `--master` names a cluster"
            ) from error
        raise VstreamError(f"the connection to Spark's Java process broke: {error_line(str(error))}") from error
    except (PySparkException, Py4JError) as error:
        hint = _damage_hint(str(error)) if is_damage(error) else None
        raise VstreamError(f"Spark failed: {error_line(str(error))}", hint=hint) from error


def _is_java_running() -> bool:
    process = getattr(find_gateway(), "proc", None)
    return process is not None and process.poll() is None


def is_damage(error: Exception) -> bool:
    """Whether Spark failed at a file that is damaged."""
    return _NO_FILE in str(error)


def is_reading(error: VstreamError) -> bool:
    """Whether what failed is ours, which reads servers, and not Spark, whose disk may be full."""
    cause = error.__cause__
    return not isinstance(cause, PySparkException | Py4JError) or OURS.search(str(cause)) is not None


def rebuild_hint(table: str) -> str:
    """What makes *table*, one that an audit kept, anew."""
    stage = _MADE_BY.get(table)
    return f"`--from {stage}` makes it again" if stage else "extract the tables again"


def _damage_hint(text: str) -> str:
    matches = _OF_TABLE.findall(text)
    return (
        f"a file of the table `{matches[-1]}` is damaged: {rebuild_hint(matches[-1])}"
        if matches
        else "a file is damaged"
    )


def error_line(text: str) -> str:
    """The line of an error of Spark that says what is wrong."""
    for pattern in (OURS, _SAID):
        matches = pattern.findall(text)
        if matches:
            return str(matches[-1]).strip()
    if missing := _NO_CLASS.search(text):
        return f"this Spark has no `{missing['name']}`: a package that is missing, or another version of it"
    causes = _CAUSE.findall(text)
    line = causes[-1] if causes else next((item for item in text.splitlines() if item.strip()), "it does not say why")
    line = _STATE.sub("", line).strip()
    # Of a column that is of another type, only Spark's first words name the file.
    if (file := _FILE.search(text)) and file["name"].rpartition("/")[2] not in line:
        line = f"{file['name']}: {line}"
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"
