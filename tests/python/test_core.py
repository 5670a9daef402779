"""`pumice._core` against a real `pumice up`: jobs submitted, watched, read, cancelled; and what goes wrong."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from deadline import DEADLINE, until
from pumice import _core
from up import Platform


def script(text: str, **flags: Any) -> dict[str, Any]:
    return _core.render(["sh", "-c", text], **flags)


def submit(connection: _core.Connection, text: str, **flags: Any) -> str:
    return connection.submit(script(text, **flags))


def running(connection: _core.Connection, name: str) -> None:
    until(lambda: connection.status(name)["running"])


def test_a_job_is_run_to_its_end(connection: _core.Connection) -> None:
    name = submit(connection, "echo hi", name="first")
    assert name == "first"
    ending = connection.wait(name, timeout=DEADLINE)
    assert (ending["end"], ending["exit_code"], ending["failures"]) == ("completed", 0, [])
    assert (ending["total"], ending["succeeded"], ending["waiting"]) == (1, 1, 0)
    summary = connection.status("job/first")
    assert (summary["phase"], summary["namespace"], summary["queue"]) == ("Completed", "default", "default")
    assert name in [job["name"] for job in connection.jobs()]
    assert connection.get(name)["kind"] == "Job"
    assert [line["text"] for line in connection.logs(name)] == ["hi"]


def test_where_it_is(platform: Platform, connection: _core.Connection) -> None:
    described = connection.describe()
    assert described["local"] and described["data_dir"] == str(platform.data_dir)
    assert described["url"].startswith("https://127.0.0.1:")
    assert connection.namespace == described["namespace"] == "default"


def test_a_failed_pod_says_how_it_failed(connection: _core.Connection) -> None:
    text = "case $VC_TASK_INDEX in 1) echo why >&2; exit 7;; 2) sleep 0.5; kill -TERM $$;; *) exit 0;; esac"
    name = submit(connection, text, replicas=3)
    ending = connection.wait(name, timeout=DEADLINE)
    assert (ending["end"], ending["exit_code"]) == ("failed", 1)
    first = ending["failures"][0]
    assert (first["pod"], first["exit_code"]) == (f"{name}-main-1", 7)
    by_index = {pod["index"]: pod for pod in connection.pods(name)}
    assert by_index[0]["phase"] == "Succeeded" and by_index[0]["exit_code"] == 0
    assert (by_index[1]["exit_code"], by_index[1]["signal"], by_index[1]["oom"]) == (7, None, False)
    assert by_index[1]["node"] and by_index[1]["started"] and by_index[1]["finished"]
    assert [pod["index"] for pod in connection.pods(name, index=1)] == [1]
    assert all(pod["phase"] == "Failed" for pod in connection.pods(name, failed=True))
    assert [line["text"] for line in connection.logs(name, index=1)] == ["why"]


def test_a_signal_is_told(connection: _core.Connection) -> None:
    name = submit(connection, "kill -TERM $$")
    assert connection.wait(name, timeout=DEADLINE)["failures"][0]["signal"] == signal.SIGTERM
    assert connection.pods(name)[0]["signal"] == signal.SIGTERM


def test_too_much_memory_is_told(connection: _core.Connection) -> None:
    name = submit(connection, "head -c 200m /dev/zero | tail", memory="32Mi")
    connection.wait(name, timeout=DEADLINE)
    (pod,) = connection.pods(name)
    assert (pod["oom"], pod["reason"], pod["exit_code"]) == (True, "OOMKilled", 137)


def test_lines_know_their_pod(connection: _core.Connection) -> None:
    name = submit(connection, "for i in 1 2 3; do echo $VC_TASK_INDEX.$i; done", replicas=2)
    lines = [(line["index"], line["text"]) for line in connection.logs(name, follow=True)]
    assert sorted(lines) == [(index, f"{index}.{i}") for index in (0, 1) for i in (1, 2, 3)]
    assert [line["text"] for line in connection.logs(name, index=1, tail=1)] == ["1.3"]


def test_a_watch_tells_all_up_to_the_end(connection: _core.Connection) -> None:
    name = submit(connection, "echo here; sleep 0.3")
    seen = list(connection.watch(name, logs=True))
    assert seen[0]["kind"] == "state" and seen[-1]["kind"] == "ended"
    assert seen[-1]["job"]["exit_code"] == 0
    assert [message["text"] for message in seen if message["kind"] == "line"] == ["here"]


def test_a_watch_goes_on_when_the_server_comes_back(platform: Platform, tmp_path: Path) -> None:
    connection = platform.connect()
    text = "until [ -e go ]; do sleep 0.1; done; exit 3"
    name = submit(connection, text, workdir=str(tmp_path), share_workdir=True)
    watch = connection.watch(name)
    running(connection, name)
    platform.crash()
    while next(watch)["kind"] != "lost":
        pass
    platform.up()
    (tmp_path / "go").touch()
    last = list(watch)[-1]
    assert last["kind"] == "ended" and last["job"]["failures"][0]["exit_code"] == 3
    # The connection finds the server where it is now, as the watch did.
    assert connection.status(name)["end"] == "failed"
    with pytest.raises(_core.UnreachableError):
        submit(connection, "true")
    assert connection.wait(submit(connection, "true"), timeout=DEADLINE)["end"] == "completed"


def test_pods_are_watched(connection: _core.Connection) -> None:
    name = submit(connection, "sleep 0.$VC_TASK_INDEX", replicas=3)
    watch = connection.watch_pods(name)
    phases: dict[int | None, str] = {}
    while list(phases.values()) != ["Succeeded"] * 3:
        news = next(watch)
        if news["kind"] == "snapshot":
            phases |= {pod["index"]: pod["phase"] for pod in news["pods"]}
        elif news["kind"] == "changed":
            phases[news["pod"]["index"]] = news["pod"]["phase"]
    assert watch.poll(0.01) is None and not watch.ended
    watch.close()
    assert watch.ended and next(watch, None) is None


def test_closing_a_stream_ends_the_wait_of_another_thread(connection: _core.Connection) -> None:
    name = submit(connection, "sleep 600")
    watch = connection.watch_pods(name)
    reader = threading.Thread(target=lambda: list(watch))
    reader.start()
    running(connection, name)
    watch.close()
    reader.join(DEADLINE)
    assert not reader.is_alive()
    connection.cancel(name)


def test_a_job_is_cancelled(connection: _core.Connection) -> None:
    name = submit(connection, "sleep 600")
    running(connection, name)
    assert connection.cancel(name) == {"end": "terminated", "already_ended": False}
    assert connection.cancel(name) == {"end": "terminated", "already_ended": True}
    assert connection.status(name)["exit_code"] == 7


def test_why_and_events_of_a_job_that_fits_nowhere(connection: _core.Connection) -> None:
    name = submit(connection, "true", cpu="5000")
    until(lambda: "cpu" in connection.why(name)["text"].lower())
    waits = next(message for message in connection.watch(name) if message["kind"] == "waits")
    assert waits["why"]["text"]
    why = connection.why(name)
    assert why["queue"] == "default" and why["line"] == {"queue": "default", "ahead": 0, "waiting": 1}
    assert [could["change"] for could in why["could"]] == ["request"]
    assert why["could"][0]["resource"] == "cpu" and 0 < why["could"][0]["amount"] < 5_000_000
    queue = connection.why_queue("default")
    assert queue["status"]["waiting"] == 1 and name in queue["text"]
    ended = submit(connection, "true")
    connection.wait(ended, timeout=DEADLINE)
    node = connection.why_node(connection.pods(ended)[0]["node"])
    assert node["status"]["hole"]["cpu"] > 0 and "free" in node["text"]
    with pytest.raises(_core.NotFoundError):
        connection.why_queue("none-such")
    with pytest.raises(_core.UsageError):
        connection.why_node("../x")
    until(lambda: connection.events(name))
    with pytest.raises(_core.TimedOutError) as caught:
        connection.wait(name, timeout=0.05)
    assert (caught.value.exit_code, caught.value.next_command) == (8, f"jobctl why {name}")
    connection.cancel(name)


def test_ctrl_c_ends_the_wait_and_not_the_job(connection: _core.Connection) -> None:
    # A shell's background job, as a test run may be, begins with the signal ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    name = submit(connection, "sleep 600")
    running(connection, name)
    for wait in (lambda: connection.wait(name), lambda: list(connection.logs(name, follow=True))):
        # Another thread runs while this one waits: else nobody would send the signal.
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            wait()
    assert connection.status(name)["running"] == 1
    connection.cancel(name)


def test_a_forked_child_may_use_the_connection_and_not_the_stream(connection: _core.Connection) -> None:
    name = submit(connection, "sleep 600")
    stream = connection.watch(name)
    assert next(stream)["kind"] == "state"
    child = os.fork()
    if child == 0:
        code = 1
        try:
            found = connection.status(name)["name"] == name
            try:
                stream.poll(1.0)
            except _core.UsageError:
                code = 0 if found else 2
            del stream
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert connection.cancel(name)["end"] == "terminated"
    assert [message["kind"] for message in stream][-1] == "ended"


def test_a_manifest_may_bring_what_the_job_needs(connection: _core.Connection) -> None:
    manifest = """
apiVersion: v1
kind: ConfigMap
metadata: {name: beside}
data: {word: hello}
---
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {generateName: with-}
spec:
  tasks:
  - name: only
    replicas: 1
    template:
      spec:
        restartPolicy: Never
        containers:
        - {name: c, image: pumice.sh/host, command: [cat, /settings/word], volumeMounts: [{name: s, mountPath: /settings}]}
        volumes: [{name: s, configMap: {name: beside}}]
"""
    name = connection.submit(manifest)
    assert connection.wait(name, timeout=DEADLINE)["end"] == "completed"
    assert [(line["task"], line["text"]) for line in connection.logs(name)] == [("only", "hello")]


@pytest.mark.parametrize(
    ("call", "kind", "exit_code", "said"),
    [
        (lambda c: c.status("nothing"), _core.NotFoundError, 3, "no job nothing"),
        (lambda c: c.watch_pods("nothing"), _core.NotFoundError, 3, "no job nothing"),
        (lambda c: next(c.watch("nothing")), _core.NotFoundError, 3, "no job nothing"),
        (lambda c: c.status("../x"), _core.UsageError, 2, "job name"),
        (lambda c: c.submit("{"), _core.UsageError, 2, "line 1"),
        (lambda c: c.submit("kind: ConfigMap\napiVersion: v1\nmetadata: {name: x}"), _core.UsageError, 2, "one Job"),
        (lambda c: c.submit(script("true", queue="nowhere")), _core.NotFoundError, 3, "no queue nowhere"),
        (lambda c: c.wait("x", timeout=-1), _core.UsageError, 2, "seconds"),
        (lambda c: c.wait("x", timeout=float("nan")), _core.UsageError, 2, "seconds"),
        (lambda c: _core.render([]), _core.UsageError, 2, "no command"),
        (lambda c: _core.render(["x"], memory="many"), _core.UsageError, 2, "--memory"),
    ],
)
def test_wrong_input_is_refused(connection: _core.Connection, call: Any, kind: Any, exit_code: int, said: str) -> None:
    with pytest.raises(kind, match=said) as caught:
        call(connection)
    assert isinstance(caught.value, _core.CoreError) and caught.value.exit_code == exit_code


def test_days_of_an_exchange() -> None:
    assert _core.days("2024-03-27", "2024-04-02", "XNYS") == ["2024-03-27", "2024-03-28", "2024-04-01", "2024-04-02"]
    assert len(_core.days("2024-01-01", "2024-12-31")) == 262
    for first, last, calendar, said in [
        ("2024-1-1", "2024-01-02", "all", "2024-1-1"),
        ("2024-01-02", "2024-01-01", "all", "2024-01-01"),
        ("2024-01-01", "2024-01-02", "XXXX", "weekdays"),
    ]:
        with pytest.raises(_core.UsageError, match=said):
            _core.days(first, last, calendar)


def test_a_value_that_is_no_json_is_refused(connection: _core.Connection) -> None:
    cycle: dict[str, Any] = {}
    cycle["itself"] = cycle
    deep: Any = 1
    for _ in range(500):
        deep = [deep]
    for value in (cycle, {"a": float("nan")}, {"a": {1, 2}}, {"a": deep}):
        with pytest.raises((ValueError, TypeError)):
            connection.submit(value)


def test_a_name_is_taken_once(connection: _core.Connection) -> None:
    submit(connection, "true", name="taken")
    with pytest.raises(_core.ConflictError) as caught:
        submit(connection, "true", name="taken")
    assert (caught.value.exit_code, caught.value.next_command) == (6, "jobctl get taken")


def test_no_platform_is_said_with_the_command_that_starts_one(tmp_path: Path) -> None:
    with pytest.raises(_core.UnreachableError) as caught:
        _core.Connection.open(data_dir=tmp_path)
    assert (caught.value.exit_code, caught.value.next_command) == (5, f"pumice up --data-dir {tmp_path}")
