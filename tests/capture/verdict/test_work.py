"""How the work of a verdict grows: counted, since times depend on the machine."""

from __future__ import annotations

from math import log2
from pathlib import Path

from tests.support.call_counts import count_calls
from tests.support.captures import Shape, clean
from vstream.capture.verdict.judge_capture import judge_capture

FEW, MANY = 100, 800
SLACK = 1.25


def once(path: Path, messages: int, *, is_shuffled: bool = False) -> int:
    history = clean(Shape(messages=messages, consumers=False, rate=messages, indeterminate=0.2))
    if is_shuffled:
        history.streams = {name: rows[::-1] for name, rows in history.streams.items()}
        history.operations = [operation for operation in history.operations if int(operation.id.split("-")[1]) % 2]  # type: ignore[union-attr]
    capture = history.write(path)
    return count_calls(lambda: judge_capture(capture))


def test_work_grows_with_the_messages_and_not_with_their_square(tmp_path: Path) -> None:
    expected = (MANY * log2(MANY)) / (FEW * log2(FEW))
    assert once(tmp_path / "many", MANY) < SLACK * expected * once(tmp_path / "few", FEW)


def test_work_on_a_history_that_is_all_wrong_grows_no_faster(tmp_path: Path) -> None:
    expected = (MANY * log2(MANY)) / (FEW * log2(FEW))
    many = once(tmp_path / "many", MANY, is_shuffled=True)
    assert many < SLACK * expected * once(tmp_path / "few", FEW, is_shuffled=True)
