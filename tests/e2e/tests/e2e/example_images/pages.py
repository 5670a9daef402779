#!/usr/bin/python3
"""Gets the pages of all pods of a job, by the names that its plugins have written down; else of those that are named."""

import sys
from pathlib import Path

from peers import call, say

lists = sorted(Path("/etc/volcano").glob("*.host"))
for host in [host for names in lists for host in names.read_text().split()] or sys.argv[1:]:
    server = call(host, 80)
    say(server, "GET / HTTP/1.0\r\n\r")
    print(server.read().split("\n\n")[-1].strip(), flush=True)
