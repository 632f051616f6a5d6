"""What benchmarks compute from their measurements."""

from __future__ import annotations

import os
import subprocess

import msgspec
import pytest

from bench import __main__ as program
from bench.figures import Figure, Spread, compare, comparison, growth_exponent


def run_of(name="queue", seconds=2.0, **more):
    rows = [{"name": "add", "cost": seconds, "note": None, **more}]
    return {"name": name, "rows": rows, "bars": [{"name": "growth", "value": 1.5, "limit": 2.0}]}


def test_a_spread_has_the_smallest_the_median_and_the_largest_of_its_values():
    assert Spread.of([3.0, 1.0, 2.0]) == Spread(1.0, 2.0, 3.0)
    assert Spread.of([5.0]) == Spread(5.0, 5.0, 5.0)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 2.0])
def test_the_exponent_is_that_of_the_curve(exponent):
    sizes = [1_000, 2_000, 4_000, 8_000]
    assert growth_exponent(sizes, [0.3 * size**exponent for size in sizes]) == pytest.approx(exponent)


def test_the_exponent_of_measurements_with_noise_is_close_to_that_of_the_curve():
    assert growth_exponent([1, 2, 4, 8], [1.1, 1.9, 4.2, 7.9]) == pytest.approx(1.0, abs=0.05)


def test_a_comparison_has_the_ratio_of_every_figure_and_names_what_only_one_run_has():
    figures = compare(run_of(seconds=2.0, old_only=1), run_of(seconds=3.0, new_only=7))
    assert figures == [
        Figure("add: cost", 2.0, 3.0),
        Figure("add: new_only", None, 7),
        Figure("bar: growth", 1.5, 1.5),
        Figure("add: old_only", 1, None),
    ]
    assert [figure.ratio for figure in figures] == [1.5, None, 1.0, None]
    assert comparison(figures).splitlines()[2:4] == ["| add: cost | 2 | 3 | 1.5 |", "| add: new_only | - | 7 | - |"]


def test_a_figure_that_was_zero_has_no_ratio():
    assert Figure("requests", 0, 5).ratio is None


def test_the_old_file_names_the_benchmark_and_is_read_before_it_is_written_again(tmp_path, monkeypatch, capsys):
    def measure(command, **_options):
        (tmp_path / "queue.json").write_bytes(msgspec.json.encode(run_of(seconds=3.0)))
        assert command[1].name == "bench_queue.py"
        return subprocess.CompletedProcess(command, 0)

    (tmp_path / "queue.json").write_bytes(msgspec.json.encode(run_of(seconds=2.0)))
    monkeypatch.setattr(program, "RESULTS", tmp_path)
    monkeypatch.setattr(subprocess, "run", measure)
    assert program.main(["--compare", str(tmp_path / "queue.json")]) == 0
    assert "| add: cost | 2 | 3 | 1.5 |" in capsys.readouterr().out


def test_a_run_that_wrote_nothing_is_not_compared(tmp_path, monkeypatch, capsys):
    (tmp_path / "queue.json").write_bytes(msgspec.json.encode(run_of()))
    os.utime(tmp_path / "queue.json", (0, 0))
    monkeypatch.setattr(program, "RESULTS", tmp_path)
    monkeypatch.setattr(subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 1))
    assert program.main(["--compare", str(tmp_path / "queue.json")]) == 1
    assert capsys.readouterr().err == "error: the run wrote no queue.json, so there is nothing to compare\n"


@pytest.mark.parametrize("content", [None, "{", "[]", "{}"])
def test_a_file_that_is_not_a_result_is_refused_in_one_line(tmp_path, capsys, content):
    if content is not None:
        (tmp_path / "old.json").write_text(content)
    assert program.main(["--compare", str(tmp_path / "old.json")]) == 2
    assert capsys.readouterr().err.startswith("error: --compare needs a result file such as bench/results/queue.json")
