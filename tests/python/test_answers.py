"""What users' programs do is the same on this machine, on the platform and in a fleet, and is what they expect.

The programs are in `scripts`; each runs its cases by itself, see `scripts/cases.py`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from test_fleet_context import real  # noqa: F401 - a fixture

from deadline import DEADLINE
from fleet import Fleet
from up import Platform

SCRIPTS = Path(__file__).parent / "scripts"
PROGRAMS = sorted(path.stem for path in SCRIPTS.glob("*.py") if path.stem != "cases")
PLACES = ("local", "platform", "fleet")
# Fewer would mean that some were lost.
CASES_AT_LEAST = 170


@pytest.fixture(scope="module")
def environs(
    platform: Platform,
    real: Fleet,  # noqa: F811 - the fixture
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, dict[str, str]]:
    """The variables with which a program runs in each place."""
    base = {name: value for name, value in os.environ.items() if name not in ("XDG_CONFIG_HOME", "PUMICE_BACKEND")}
    base["PYTHONDONTWRITEBYTECODE"] = "1"
    folder = tmp_path_factory.mktemp("shared")
    return {
        "local": base | {"CASES_ON": "local"},
        "platform": base
        | {"CASES_ON": "platform", "PUMICE_DATA_DIR": str(platform.data_dir), "PUMICE_CACHE": str(folder / "platform")},
        "fleet": base | {"CASES_ON": f"fleet:{folder / 'fleet'}", "HOME": str(real.directory)},
    }


def answers(program: str, environ: dict[str, str], folder: Path) -> dict[str, tuple[str, str]]:
    """What a program expects and what it is answered, by case. Its own folder is another than the one it is started in."""
    beside, started = folder / "beside", folder / "started"
    shutil.copytree(SCRIPTS, beside)
    started.mkdir()
    # Warnings of this library's own are faults; others' aren't ours.
    command = [sys.executable, "-W", "error::RuntimeWarning", str(beside / f"{program}.py")]
    done = subprocess.run(
        command, cwd=started, env=environ, capture_output=True, text=True, timeout=3 * DEADLINE, check=False
    )
    assert done.returncode == 0 and done.stdout, done.stdout + done.stderr
    return {case["name"]: (case["expected"], case["answer"]) for case in json.loads(done.stdout)}


SEEN: dict[str, int] = {}


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_answers_are_the_same_everywhere(program: str, environs: dict[str, dict[str, str]], tmp_path: Path) -> None:
    with ThreadPoolExecutor(len(PLACES)) as threads:
        tables = list(threads.map(lambda place: answers(program, environs[place], tmp_path / place), PLACES))
    here = tables[0]
    assert all(table.keys() == here.keys() for table in tables)
    SEEN[program] = len(here)
    print(f"{program:>10}  {'  '.join(PLACES)}")
    wrong = []
    for name, (expected, _) in here.items():
        given = [table[name][1] for table in tables]
        print(f"{name:>60}  {'  '.join('right' if answer == expected else 'WRONG' for answer in given)}")
        wrong += [
            f"{name} ({place}): {expected} was expected, and {answer[-2000:]} was the answer"
            for place, answer in zip(PLACES, given, strict=True)
            if answer != expected
        ]
    assert not wrong, "\n".join(wrong)


def test_no_case_was_lost() -> None:
    if SEEN.keys() != set(PROGRAMS):
        pytest.skip("not all programs have run")
    assert sum(SEEN.values()) >= CASES_AT_LEAST, SEEN
