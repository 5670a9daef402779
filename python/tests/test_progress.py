"""What is shown: the line of a terminal, the table of a notebook, the question after Ctrl-C."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from pathlib import Path

import pytest

import pumice
from pumice import State, progress
from pumice.notebook import html

ROOT = str(Path(pumice.__file__).parent.parent)


@pytest.mark.parametrize(
    ("counts", "seconds", "width", "expected"),
    [
        ({}, 0, 80, "████████████████████ 100 % 0/0 ok"),
        ({State.WAITING: 10}, 1, 80, "░░░░░░░░░░░░░░░░░░░░ 0 % 0/10 ok · 10 wait"),
        ({State.SUCCEEDED: 50, State.WAITING: 50}, 5, 80, "██████████░░░░░░░░░░ 50 % 50/100 ok · 50 wait · 10/s · left 5 s"),
        (
            {State.SUCCEEDED: 71_240, State.FAILED: 12, State.RUNNING: 3980, State.WAITING: 24_768},
            173,
            200,
            "██████████████▒░░░░░ 71 % 71,240/100,000 ok · 12 fail · 3,980 run · 24,768 wait · 412/s · left 70 s",
        ),
        ({State.SUCCEEDED: 1, State.FAILED: 1, State.WAITING: 8}, 1, 40, "████░░░░░░░░░░░░░░░░ 20 % 1/10 ok"),
    ],
)
def test_the_line(counts, seconds, width, expected):
    assert progress.line(Counter(counts), seconds, width) == expected
    assert len(progress.line(Counter(counts), seconds, 10)) <= 10


def in_terminal(script: str, answer: bytes | None = None) -> str:
    """What a script writes in a terminal; with an answer, it gets Ctrl-C when it shows progress, and that."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["PYTHONPATH"] = ROOT
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.execv(sys.executable, [sys.executable, "-c", textwrap.dedent(script)])
    written = b""
    interrupted = answered = False
    deadline = time.monotonic() + 60
    try:
        while True:
            ready, _, _ = select.select([terminal], [], [], max(0, deadline - time.monotonic()))
            assert ready, written.decode()
            try:
                data = os.read(terminal, 4096)
            except OSError:
                break
            if not data:
                break
            written += data
            if answer is not None and b" 0/2 ok" in written and not interrupted:
                interrupted = True
                os.write(terminal, b"\x03")
            if answer is not None and b"[y/N]" in written and not answered:
                answered = True
                os.write(terminal, answer)
    finally:
        os.close(terminal)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return written.decode()


def test_a_terminal_shows_one_line():
    written = in_terminal("""
        import pumice, time
        with pumice.use(pumice.local(2)):
            pumice.task(time.sleep).map([0.3, 0.3, 0.31, 0.32]).results()
    """)
    assert re.search(r"\r█{20} 100 % 4/4 ok.*\n$", written), written
    assert written.count("\n") == 1


HANGS = """
    import pumice, time, pathlib, tempfile
    began = pathlib.Path(tempfile.mkdtemp()) / "began"
    def hang(x):
        began.touch()
        time.sleep(600)
    with pumice.use(pumice.local(1)):
        result = pumice.task(hang).map([1, 2])
        while not began.exists():
            time.sleep(0.01)
        try:
            result.wait()
        except KeyboardInterrupt:
            if CANCELS:
                result.wait(30)
            print("states", sorted(item.state.value for item in result.items), flush=True)
        result.cancel()
        result.wait(30)
"""


@pytest.mark.parametrize(
    ("answer", "states"),
    [(b"y\n", "['cancelled', 'cancelled']"), (b"n\n", "['running', 'waiting']"), (b"\x03", "['running', 'waiting']")],
)
def test_ctrl_c_ends_the_wait_and_asks_about_the_job(answer, states):
    written = in_terminal(HANGS.replace("CANCELS", str(answer == b"y\n")), answer)
    assert "runs on. Cancel it? [y/N]" in written and f"states {states}" in written, written


def test_a_ctrl_c_that_comes_while_the_question_is_asked_is_not_lost():
    written = in_terminal("""
        import signal, threading, time
        from pumice.interrupt import asked_to_cancel
        def elsewhere():
            time.sleep(0.5)
            # As one that comes just before it, this does not end a call in which the main thread waits.
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        threading.Thread(target=elsewhere).start()
        print("answer", asked_to_cancel("job"))
    """)
    assert "answer False" in written, written


@pytest.mark.parametrize(("method", "shown"), [("wait", ""), ("progress", "100 % 1/1 ok")])
def test_nothing_is_shown_where_nobody_looks_unless_asked(method, shown):
    script = f"import pumice; pumice.use(pumice.fake()); r = pumice.task(abs).map([1]); r.results(); r.{method}()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr.strip("\r\n█ ") == shown.strip("█ ")


def test_the_notebook_table_has_counts_and_failures_and_no_markup_of_users(fake):
    fake.fail("<b>", "<script>alert()</script>")
    text = pumice.task(len).map(["a", "<b>"], name="<i>", key=str)._repr_html_()
    assert "succeeded" in text and "failed" in text and "&lt;script&gt;" in text
    assert "<script>" not in text and "<b>" not in text and "<i>" not in text
    assert html("empty", Counter(), ())


def test_a_notebook_shows_progress_and_the_table(tmp_path):
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [
        nbformat.v4.new_code_cell(
            "import pumice, time\npumice.use(pumice.local(2))\n"
            "@pumice.task\ndef f(x):\n    time.sleep(0.4)\n    return x * 2"
        ),
        nbformat.v4.new_code_cell("result = f.map([1, 2, 3])\nresult.results()"),
        nbformat.v4.new_code_cell("result"),
        nbformat.v4.new_code_cell("await f.submit(4)"),
    ]
    nbformat.write(notebook, tmp_path / "in.ipynb")
    command = [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "in.ipynb", "--output", "out.ipynb"]
    environ = {**os.environ, "PYTHONPATH": ROOT, "HOME": str(tmp_path)}
    subprocess.run(command, cwd=tmp_path, env=environ, check=True, timeout=110, capture_output=True)
    cells = nbformat.read(tmp_path / "out.ipynb", 4).cells
    shown = {cell.execution_count: [output.get("data", {}) for output in cell.outputs] for cell in cells}
    assert shown[2][-1]["text/plain"] == "[2, 4, 6]"
    assert "succeeded" in shown[2][0]["text/html"]
    assert "local/f-1" in shown[3][0]["text/html"]
    assert shown[4][0]["text/plain"] == "8"
