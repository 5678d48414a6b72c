"""`vstream lint --explain`."""

from __future__ import annotations

from difflib import get_close_matches

import typer

from vstream.audit.codes import CHAPTER as AUDIT
from vstream.health.doctor.examine import CHAPTER as DOCTOR
from vstream.lint.manual import CHAPTERS
from vstream.lint.selection import RETIRED


def explain(code: str) -> None:
    """
    Print the manual page of a finding by its code or name: what is wrong, why it matters, and what to do.

    For `list`, print all codes. Raises BadParameter if there is none such.
    """
    chapters = (*CHAPTERS, AUDIT, DOCTOR)
    pages = {page.code: page for chapter in chapters for page in chapter.pages}
    if code == "list":
        for chapter in chapters:
            typer.echo(chapter.title)
            for page in chapter.pages:
                typer.echo(f"  {page.code}  {page.severity.value:<7}  {page.name}")
        return
    word = code.strip().lower()
    if word.upper() in RETIRED:
        typer.echo(f"{word.upper()} is retired: {RETIRED[word.upper()]}")
        return
    chosen = [page for page in pages.values() if word in {page.code.lower(), page.name}]
    if not chosen:
        names = [name for page in pages.values() for name in (page.code.lower(), page.name)]
        close = next(iter(get_close_matches(word, names, n=1)), None)
        hint = f"did you mean `{close.upper() if close.upper() in pages else close}`? " if close else ""
        raise typer.BadParameter(
            f"there is no `{code}`; {hint}`vstream lint --explain list` lists all codes", param_hint="--explain"
        )
    texts = (f"{page.code} {page.name} ({page.severity.value})\n\n{page.text}" for page in chosen)
    typer.echo("\n\n".join(texts))
