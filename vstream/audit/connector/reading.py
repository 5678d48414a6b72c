"""
Read one range of one stream, up to its proven end.

A replica that lags behind ends too early without an error. A range is complete once a
message at or after its end was seen, because replicas apply messages in order. If there is
none, the stream's leader must confirm that no more messages exist. Until then, and after
a broken connection, the missing part is requested again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import serializers

from vstream.audit.connector import direct_get, pull_consumer
from vstream.audit.connector.client import Client, RetryableError, api_request, back_off, connect
from vstream.audit.connector.columns import MessageColumns, combine_batches, filter_subjects, make_batch, truncate_at
from vstream.audit.connector.values import CONSUMER, DIRECT, MAX_FURTHER_SEQUENCES, ReadTask
from vstream.errors import NoRespondersError, NotPermittedError, NotReachableError, ServerError, VstreamError
from vstream.jetstream import error_codes
from vstream.jetstream.answers import convert_malformed_errors

_PARTS = {CONSUMER: pull_consumer.read_parts, DIRECT: direct_get.read_parts}
MAX_ATTEMPTS = 8
"""Number of attempts in a row without a message before a range fails: about ten seconds."""
_STATUS_UNAVAILABLE = 503
_SPARK: Any = serializers  # they have no types
_SERIALIZER = _SPARK.CompressedSerializer(_SPARK.CPickleSerializer())


def make_group_reader(
    groups: Sequence[Sequence[ReadTask]], schema: pa.Schema, directory: Path | None = None
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """
    A function for `mapInArrow` that applies `read_ranges` to each of *groups* whose number in the list it gets.

    With *directory* it writes what it reads to a Parquet file there for each group, and returns nothing.
    """
    # Each task of Spark gets all groups, and unpickles its own alone.
    pickled = [_SERIALIZER.dumps(group) for group in groups]

    def work(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (number for batch in numbers for number in batch.column(0).to_pylist()):
            messages = read_ranges(_SERIALIZER.loads(pickled[number]), schema)
            if directory is None:
                yield from messages
                continue
            with pq.ParquetWriter(directory / f"{number}.parquet", schema) as file:
                for batch in combine_batches(messages):
                    file.write_batch(batch)

    return work


def read_ranges(tasks: Sequence[ReadTask], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The messages of all *tasks*, a group of `group_tasks`, each as `read_range` gives them, which says what is raised."""
    left = tasks if len(tasks) == 1 else (yield from direct_get.read_small(tasks, schema))
    for task in left:
        yield from read_range(task, schema)


def read_range(task: ReadTask, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """
    Every stored message of *task* once, in the order of sequences, in batches of *schema*.

    Raises NotReachableError if the end of the range cannot be reached, and other VstreamErrors
    if a retry would not help.
    """
    columns = MessageColumns.of(schema)
    matches = subject_pattern(task.subjects)
    path = task.path
    position = task.first
    attempts = 0
    end = task.last + MAX_FURTHER_SEQUENCES if task.goes_on else task.last
    while position <= end:
        # A copy that is asked for some subjects cannot show how far it is, so the second time it is asked for all.
        asked = replace(task, last=end, subjects=() if attempts and path == DIRECT else task.subjects)
        try:
            # Closed before the connection is, for it removes its consumer.
            with connect(task.access) as client, closing(_PARTS[path](client, asked, position, columns)) as pieces:
                for piece in pieces:
                    position = piece["seq"][-1].as_py() + 1
                    attempts = 0
                    block = truncate_at(piece, end)
                    if matches is not None:
                        block = filter_subjects(block, matches)
                    if block.num_rows:
                        yield make_batch(schema, block, [(task.stream_ref, block.num_rows)])
            if position > task.last or is_complete(replace(asked, last=task.last), position):
                return
            problem: VstreamError = RetryableError("the copy that answered ends before its leader does")
        except VstreamError as error:
            # Direct Get may not be possible where it is the second choice.
            if path == task.path and not _is_retryable(error):
                raise
            problem = error
        attempts += 1
        # Where the disk of its servers is full, nobody can make a consumer of a stream, and Direct Get still answers.
        path = DIRECT if attempts % 2 else task.path
        if attempts >= MAX_ATTEMPTS:
            raise NotReachableError(
                f"stream `{task.stream_ref.stream}` in region `{task.stream_ref.region}` cannot be read beyond "
                f"{position - 1} up to {task.last}: {problem.message}",
                hint=problem.hint,
            )
        back_off(attempts)


def _is_retryable(error: VstreamError) -> bool:
    """Whether a retry may help."""
    if isinstance(error, ServerError):
        return error.code == _STATUS_UNAVAILABLE
    return isinstance(error, NotReachableError) and not isinstance(error, NotPermittedError)


def is_complete(task: ReadTask, position: int) -> bool:
    """Whether the stream's leader has no further message from *position* to the end of *task*."""
    with connect(task.access) as client:
        try:
            return all(
                _find_next_seq(client, task, position, subject) > task.last for subject in task.subjects or (">",)
            )
        except NotPermittedError:
            raise
        except (ServerError, NoRespondersError, NotReachableError):
            # No meta leader, or no answer in time: STREAM.INFO is answered without a leader.
            state = api_request(client, task.access, f"STREAM.INFO.{task.stream_ref.name}", {"deleted_details": True})[
                "state"
            ]
    with convert_malformed_errors(f"STREAM.INFO.{task.stream_ref.name}"):
        if int(state["first_seq"]) > task.last:
            return True
        gone = set(state.get("deleted") or ())
        return all(seq in gone for seq in range(max(position, int(state["first_seq"])), task.last + 1))


def _find_next_seq(client: Client, task: ReadTask, position: int, subject: str) -> int:
    """The sequence of the first message on *subject* from *position* on; a number after the end of *task* if none."""
    try:
        answer = api_request(
            client, task.access, f"STREAM.MSG.GET.{task.stream_ref.name}", {"seq": position, "next_by_subj": subject}
        )
    except ServerError as error:
        if error.err_code == error_codes.MESSAGE_NOT_FOUND:
            return task.last + 1
        raise
    with convert_malformed_errors(f"STREAM.MSG.GET.{task.stream_ref.name}"):
        return int(answer["message"]["seq"])


def subject_pattern(subjects: tuple[str, ...]) -> re.Pattern[str] | None:
    """A regular expression that matches what any of *subjects* matches; None if *subjects* is empty (everything)."""
    if not subjects:
        return None
    return re.compile("|".join(_pattern(subject) for subject in subjects), re.DOTALL)


def _pattern(subject: str) -> str:
    tokens = subject.split(".")
    parts = [r"[^.]+" if token == "*" else re.escape(token) for token in tokens]
    if tokens[-1] == ">":
        parts[-1] = r".+"
    return r"\.".join(parts)
