#!/usr/bin/python3
"""Stands in for `ray start`: the head takes nodes in, and each node stays as long as the head does."""

import argparse
import socket

from peers import accept, call, listen, say

parser = argparse.ArgumentParser()
parser.add_argument("command", choices=["start"])
parser.add_argument("--head", action="store_true")
parser.add_argument("--block", action="store_true", required=True)
parser.add_argument("--address")
parser.add_argument("--port", type=int, default=6379)
parser.add_argument("--dashboard-host")
parser.add_argument("--dashboard-port", type=int)
parser.add_argument("--ray-client-server-port", type=int)
flags = parser.parse_args()
if flags.head:
    nodes = []
    server = listen("0.0.0.0", flags.port)
    while True:
        nodes.append(accept(server))
        print("node", nodes[-1].readline().strip(), "joined", flush=True)
        say(nodes[-1], socket.gethostname())
head = call(*flags.address.rsplit(":", 1))
say(head, socket.gethostname())
print("joined", head.readline().strip(), flush=True)
raise SystemExit(f"the head is gone: {head.readline()}")
