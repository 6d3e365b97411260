"""Options that several commands share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from rota.cli.options import command, duration_s, long_duration_s


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("20m", 1200), ("2h", 7200), ("1.5d", 129_600), ("0", 0), (".5", 0.5)],
)  # fmt: skip
def test_durations_are_written_with_a_unit_or_in_seconds(text: str, seconds: float) -> None:
    assert duration_s(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "h", "-3s", "nan", "inf", "1e5", "3 weeks", "1h30m", "9" * 400]
)
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(typer.BadParameter, match=r"no duration; write one like 90s|longer than"):
        duration_s(text)


def test_where_a_bare_number_would_be_misread_the_unit_is_asked_for() -> None:
    assert long_duration_s("500h") == 1_800_000
    with pytest.raises(typer.BadParameter, match="'500' has no unit; write 500h or 500s"):
        long_duration_s("500")
    with pytest.raises(typer.BadParameter, match="not above 0"):
        long_duration_s("0h")


@dataclass(frozen=True)
class Wanted:
    name: Annotated[str, typer.Argument()]
    wait: Annotated[
        float, typer.Option(parser=duration_s, metavar="DURATION", help="How long.")
    ] = 60.0
    many: Annotated[list[str] | None, typer.Option()] = None


def test_a_dataclass_is_a_command() -> None:
    app, seen = typer.Typer(), []

    @app.command()
    @command(Wanted)
    def wait(wanted: Wanted) -> None:
        """Wait for NAME."""
        seen.append(wanted)

    @app.command()
    def other() -> None: ...

    run = CliRunner().invoke
    assert run(app, ["wait", "x"]).exit_code == 0
    assert run(app, ["wait", "y", "--wait", "2m", "--many", "a", "--many", "b"]).exit_code == 0
    assert seen == [Wanted("x"), Wanted("y", 120.0, ["a", "b"])]
    refused = run(app, ["wait", "x", "--wait", "soon"])
    assert refused.exit_code == 2
    assert "'soon' is no duration" in refused.output
    assert "DURATION" in run(app, ["wait", "--help"]).output
