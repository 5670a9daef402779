"""Stands in for programs of TensorFlow: parameter servers and workers meet as TF_CONFIG or flags say.

Each worker tells every server its index. A server that knows all workers calls each of them by its own name and port, and tells
it their sum. So a worker ends well only if every server has met every worker. A server serves until it is ended.
"""

import argparse
import json
import os
import time

from peers import accept, call, listen, say


def cluster():
    if "TF_CONFIG" in os.environ:
        config = json.loads(os.environ["TF_CONFIG"])
        task = config["task"]
        return config["cluster"]["ps"], config["cluster"]["worker"], task["type"], task["index"]
    parser = argparse.ArgumentParser()
    parser.add_argument("--job_name", required=True)
    parser.add_argument("--task_index", type=int, required=True)
    parser.add_argument("--ps_hosts", required=True)
    parser.add_argument("--worker_hosts", required=True)
    flags, _others = parser.parse_known_args()
    hosts = [[host for host in text.split(",") if host] for text in (flags.ps_hosts, flags.worker_hosts)]
    return *hosts, flags.job_name, flags.task_index


servers, workers, role, index = cluster()
own = listen(*{"ps": servers, "worker": workers}[role][index].rsplit(":", 1))
total = sum(range(len(workers)))
if role == "ps":
    met = sorted(int(accept(own).readline()) for _ in workers)
    assert met == list(range(len(workers))), met
    for worker in workers:
        say(call(*worker.rsplit(":", 1)), sum(met))
        print("ps", index, "reached", worker, flush=True)
    while True:
        time.sleep(1000)
for server in servers:
    say(call(*server.rsplit(":", 1)), index)
for _ in servers:
    answer = int(accept(own).readline())
    assert answer == total, answer
    print("worker", index, "of", len(workers), "got", answer, flush=True)
